"""One-frame bitstreams for what PyAV's encoders do not write: VP9 above 8 bits, and AV1 outside its main 4:2:0.

Each is the trial picture (``software.trial_luma``: a grey ramp of 256x160 between 16 and 235, with colourless
chroma) as one packet, made by FFmpeg 9.0.2 with libvpx-vp9 (``-crf 40 -b:v 0 -cpu-used 0``) and libaom-av1
(``-crf 45 -cpu-used 1``), single-threaded, from raw frames in the pixel format of the case.
"""

from base64 import b85decode
from typing import Final

_ENCODED: Final = {
    "vp9 10-bit 4:2:0": (
        "l1YO?00;O4`vDvh4h%^E0FYtnUc0#TN3ri8QTog0mq-8rBy<1&JuCAU<EZV%;i;^#|2d^`0pWX*@}f)Ca0Tv;0;FUG"
        "VhDL;OSx3H8)WaNG<~9E$d(SrKsP`GhT{Qu5}GM;2M3bW?<;G~jG6!"
    ),
    "vp9 10-bit 4:2:2": (
        "u_VEv0sw!2Pp}ceAmGH1011F$>0Z0I^hdGpA5r?t=a)*qzyKt3|NlKJ^B3c&?Z)A$tg-(&u71QSg=9}uBJxO4AMV@j"
        "kQ0>ww|}+S)5VoHx`1Tdgc5I$*UAGX06I<}Cl^MSh_VjaI+q{}&hO-?00"
    ),
    "vp9 10-bit 4:4:4": (
        "u_VEv004i0Pp}ceAmGH1011F$>0Z0I^hdGpA5r?t=a)*qzyKt3|NlKJ^B3c&?Z)A$tg-(&tVmHG-$3<i+@HADXHOPT"
        "&=8HGU}0*(VMn<>?}fcbWd6f>gSG<H06GG*uH0rR{AsMN{-O1cW1F$800"
    ),
    "vp9 12-bit 4:2:0": (
        "l1YO?fCu;l`vDvh4h%{F0FYtu|0~t_{L$=t$JBnZ`Jey*By<1&EEkT?<Ei?tRzH<IX_gK!OEF81BkKT88pg+hIX^mz"
        "8EZe3!7Qmm2*W;|ed19r0jz&v0Ak8hL)z8}9mLrD<5$SlL^GfO"
    ),
    "vp9 12-bit 4:2:2": (
        "u_VEvLI8h&Pp}ceAmGHH011F$@c%2-`25lAd&ks%viYaF001O&|Nkr(j?d$%`mR<#l{{&e6m1AF@yEHd0Usn7lq48Z"
        "mNvuLKva%16!+vP`c5H;D1b1|6W}EO9(8G+?6@FMQbiuH>OQ<500"
    ),
    "vp9 12-bit 4:4:4": (
        "u_VEvKmdP$Pp}ceAmGHH011F$@c%2-`25lAd&ks%viYaF001O&|Nkr(j?d$%`mR<#l{{&d-hCU(V2`9r0RS}h)(#;e"
        "Eyuk<a2?=r*lHFVOzZCwiEtI{$tjIrYkZU6oVqy(B4FPmAk;HZ00"
    ),
    "av1 8-bit 4:2:2": ("5&#McKmY&(zx?_2^8zw75CE2d2p|9oC;$iqZocQ%z@2fJ5JAv^iUL+HFptye&Ns{`3(>XPn;KCImeyo}emyen"),
    "av1 8-bit 4:4:4": ("5&#McAOHXZzx?_2^8_+95CE2d2p|9oC;$iqZocQ%z@2l&c>Fw@M2_u`f|-*><VesA>X(1t4b-tw11RxscY^gg"),
    "av1 8-bit 4:0:0": ("5&#Mc00003zx?_2^Hee~5CE2dAcBer27VeeknfbmS<vnS2mc$s9RF+W`(CpFk9XVTL?VZ+g9E?<$T?{"),
    "av1 10-bit 4:2:2": ("5&#McKmY&(zx?_2^MNuo5CE2d1P}lUHvk9(ZocQ%z?#i?5JAuz1_D+vWUtfd&Ns*CPBM6i#1bnW@nDC2iTnQOfB"),
    "av1 10-bit 4:4:4": ("5&#McAOHXZzx?_2^Mo=r5CE2d1P}lUHvk9(ZocQ%z?#pcc>Fv<z>e*aNU4)X<Vei-Y5uW|{1oLN#eyy;pS8XrfB"),
    "av1 10-bit 4:0:0": ("5&#Mc00003zx?_2^VBjh5CE2d5JHW}27VeeknfQBIneF_i|-r0FaT@q`(CmyE#l6;|AS+~fAIQ)QqX~b"),
    "av1 12-bit 4:2:0": (
        "5&#MdKmY&(zx?_2^TrS|J`ezwfCd-<3O4`<li2!yWT)EeE#F406x85VZs(@8*Txqm8JdWi9WGwiz*@-iruQ*DCB4EAA;?=Q(v?U"
    ),
    "av1 12-bit 4:2:2": (
        "5&#MdKmY&(zx?_2^Ta?hJ`ezwfCd-<3O4`<li2!yWT)EeE#F406lxJmFS-@Xqz=S*=8XR?7P5u>C?eWF()Gg(rNB{OtZw$PCl+`"
    ),
    "av1 12-bit 4:4:4": (
        "5&#MdKmY&(zx?_2^T2>IJrDqvfCd-<3O4`<li2!yWT)EeE#F406+`%_kT{g_?0#XWGQ%jE9WD~*qlWib*B9>kZG%SFv8xAw_{j"
    ),
    "av1 12-bit 4:0:0": ("5&#McKmY&(zx?_2^Xf7<5CE2d7-EgckBrzl!DE&>%X{8Yx1B+#LQIIo%Xt44PW@y(tZ@6*q9U^XpRAm|rblX@rki8I"),
}

READY_STREAMS: Final = {name: b85decode(text) for name, text in _ENCODED.items()}
"""A packet by the case's codec, depth and chroma: ``vp9 10-bit 4:2:0``."""
