"""How containers spell the language of a track, by ISO 639-2."""

_MOV_LANGUAGES = (
    "alb amh ara arm asm aym aze baq bel ben bul bur cat ces chi dan dut dzo eng epo est fin fra geo ger gre grn guj "
    "heb hin hun ice ind iri ita jav jpn kan kas kaz khm kin kir kor kur lao lat lav lit mac mal mar may mlg mlt mol "
    "mon nep nor nya ori orm per pol por pus que ron run rus san sin slk slv smi snd som spa sve swa tam tat tel tgk "
    "tgl tha tib tir tuk tur uig ukr urd uzb vie wel yid"
)
"""QuickTime numbers its languages; these are the names under which FFmpeg writes and reads those numbers, measured."""
_OTHER_NAMES = (
    "fre:fra deu:ger nld:dut swe:sve ell:gre isl:ice zho:chi cze:ces rum:ron slo:slk kat:geo fas:per eus:baq cym:wel "
    "mya:bur bod:tib hye:arm sqi:alb mkd:mac msa:may"
)
_MOV_SPELLINGS = dict(pair.split(":") for pair in _OTHER_NAMES.split())  #: The other name in ISO 639-2: the one above


def as_it_is(language: str) -> str:
    """Return any language: Matroska's is text."""
    return language


def in_quicktime(language: str) -> str | None:
    """Return the name under which FFmpeg writes a language that QuickTime has a number for."""
    spelt = _MOV_SPELLINGS.get(language, language)
    return spelt if spelt in _MOV_LANGUAGES.split() else None


def iso_code(language: str) -> str | None:
    """Return a code of three letters."""
    is_code = len(language) == len("eng") and language.isascii() and language.isalpha() and language.islower()
    return language if is_code else None


def nameless(_language: str) -> None:
    """Return None: no language has a place."""
