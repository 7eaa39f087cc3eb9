// The players behind one interface. A rendition is {width, height, codec, bandwidth, key}; `key` is
// the player's own object or number for it.

/* global Hls, shaka, dashjs */

import { byQuality } from './judge.mjs';

const AHEAD_S = 4; // less than a film lasts, so that renditions are switched before the whole film is loaded
const ALL_S = 3600;

const base64Url = (hex) =>
  btoa(String.fromCharCode(...hex.match(/../g).map((each) => parseInt(each, 16))))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

/** The keys of an encrypted package, for key systems: a list of [ID, key]. */
const keyPairs = () => Object.entries(window.keys ?? {}).map((pair) => pair.map(base64Url));

const factsOf = ({ width, height, bitrate, videoCodec }) => ({ width, height, codec: videoCodec, bandwidth: bitrate });

class HlsJs {
  static version = () => Hls.version;

  constructor(video, onFault) {
    [this.video, this.onFault] = [video, onFault];
  }

  async load(url, order, whole) {
    const ahead = whole ? ALL_S : AHEAD_S;
    const keys = { keys: keyPairs().map(([kid, k]) => ({ kty: 'oct', kid, k })), type: 'temporary' };
    const licenseUrl = `data:application/json,${encodeURIComponent(JSON.stringify(keys))}`;
    this.hls = new Hls({
      autoStartLoad: false,
      maxBufferLength: ahead,
      maxMaxBufferLength: ahead,
      maxBufferSize: 2 ** 30,
      ...(window.keys && { emeEnabled: true, drmSystems: { 'org.w3.clearkey': { licenseUrl } } }),
    });
    this.hls.on(Hls.Events.ERROR, (_, { fatal, details }) => {
      // A busy machine stalls too (`Watch` measures how long), and a seek aborts requests.
      // hls.js counts a segment's time with the pictures' delay, which the edit list removes. After a switch it may
      // therefore miss the end of a segment although the buffer is complete; it then continues by itself.
      const usual = ["BUFFER_STALLED_ERROR", "INTERNAL_ABORTED", "BUFFER_APPEND_NO_PROGRESS"];
      const isUsual = usual.some((name) => Hls.ErrorDetails[name] === details);
      if (fatal || !isUsual) this.onFault(details);
    });
    const parsed = new Promise((resolve) => this.hls.on(Hls.Events.MANIFEST_PARSED, resolve));
    this.hls.loadSource(url);
    this.hls.attachMedia(this.video);
    await parsed;
  }

  renditions() {
    // A rendition is a level for each group of sound. The first level has the group that needs the least.
    const { levels } = this.hls;
    return levels
      .map((level, key) => ({ ...factsOf(level), uri: level.uri, key }))
      .filter(({ uri, key }) => levels.findIndex((each) => each.uri === uri) === key);
  }

  start(key) {
    this.hls.startLevel = this.hls.loadLevel = key;
    this.hls.startLoad(0);
  }

  switchTo(key) {
    this.hls.loadLevel = key;
  }

  sound() {
    return this.hls.audioTracks.map(({ lang }, key) => ({ lang, key }));
  }

  hear(key) {
    this.hls.audioTrack = key;
  }

  subtitles() {
    return this.hls.subtitleTracks.map(({ lang }, key) => ({ lang, key }));
  }

  read(key) {
    this.hls.subtitleDisplay = true;
    this.hls.subtitleTrack = key;
  }

  async end() {
    this.hls.destroy();
  }
}

/** Chooses the first rendition by its place in `byQuality`'s order: Shaka Player begins to load before it can be told. */
class Chosen extends shaka.abr.SimpleAbrManager {
  constructor(order) {
    super();
    this.order = order;
  }

  setVariants(variants) {
    this.variants = variants;
    super.setVariants(variants);
  }

  chooseVariant() {
    const facts = ({ height, codecs, bandwidth }) => ({ height, codec: codecs, bandwidth });
    const videos = [...new Set(this.variants.map((each) => each.video))];
    const video = videos.sort((one, other) => byQuality(facts(one), facts(other)))[this.order];
    return this.variants.find((each) => each.video === video);
  }
}

class Shaka {
  static version = () => shaka.Player.version.replace(/^v/, '');

  constructor(video, onFault) {
    [this.video, this.onFault] = [video, onFault];
  }

  async load(url, order, whole) {
    this.player = new shaka.Player();
    this.player.addEventListener('error', ({ detail }) => this.onFault(`error ${detail.code}: ${detail.message ?? ''}`));
    await this.player.attach(this.video);
    const ahead = whole ? ALL_S : AHEAD_S;
    // stallEnabled: Shaka Player would skip 0.1 s after a stop of 1 s, which also occurs on a busy machine.
    this.player.configure({
      abr: { enabled: false },
      abrFactory: () => new Chosen(order),
      drm: { clearKeys: window.keys ?? {} },
      streaming: { bufferingGoal: ahead, bufferBehind: ALL_S, stallEnabled: false },
    });
    await this.player.load(url);
  }

  renditions() {
    return this.player
      .getVideoTracks()
      .map((key) => ({ width: key.width, height: key.height, codec: key.codecs, bandwidth: key.bandwidth, key }));
  }

  start() {}

  switchTo(key) {
    this.player.selectVideoTrack(key, false);
  }

  sound() {
    return this.player.getAudioTracks().map((key) => ({ lang: key.language, key }));
  }

  hear(key) {
    this.player.selectAudioTrack(key);
  }

  subtitles() {
    return this.player.getTextTracks().map((key) => ({ lang: key.language, key }));
  }

  read(key) {
    this.player.selectTextTrack(key);
  }

  async end() {
    await this.player.destroy();
  }
}

/** The initial kbit/s that make dash.js begin with a rendition: chosen later, it would follow another's first segment. */
async function bitrateOf(url, order) {
  const manifest = new DOMParser().parseFromString(await (await fetch(url)).text(), 'text/xml');
  const listed = [...manifest.querySelectorAll('Representation[height]')].map((each) => ({
    height: Number(each.getAttribute('height')),
    codec: each.getAttribute('codecs') ?? each.parentNode.getAttribute('codecs') ?? '',
    bandwidth: Number(each.getAttribute('bandwidth')),
  }));
  return listed.sort(byQuality)[order].bandwidth / 1000;
}

class DashJs {
  static version = () => dashjs.MediaPlayer().create().getVersion();

  constructor(video, onFault) {
    [this.video, this.onFault] = [video, onFault];
  }

  async load(url, order, whole) {
    const ahead = whole ? ALL_S : AHEAD_S;
    this.player = dashjs.MediaPlayer().create();
    this.player.initialize();
    this.player.updateSettings({
      debug: { logLevel: 0 },
      streaming: {
        abr: { autoSwitchBitrate: { video: false, audio: false }, initialBitrate: { video: await bitrateOf(url, order) } },
        buffer: {
          bufferTimeDefault: ahead,
          bufferTimeAtTopQuality: ahead,
          bufferTimeAtTopQualityLongForm: ahead,
          bufferToKeep: ALL_S,
        },
        text: { defaultEnabled: false },
      },
    });
    this.player.on(dashjs.MediaPlayer.events.ERROR, ({ error }) => this.onFault(`error ${error.code}: ${error.message}`));
    if (window.keys) this.player.setProtectionData({ 'org.w3.clearkey': { clearkeys: Object.fromEntries(keyPairs()) } });
    const ready = new Promise((resolve) => this.player.on(dashjs.MediaPlayer.events.STREAM_INITIALIZED, resolve));
    this.player.attachView(this.video);
    this.player.setAutoPlay(false);
    this.player.attachSource(url);
    await ready;
  }

  renditions() {
    // Tracks of another codec than the current one state no codec for each of their renditions.
    const current = this.player.getCurrentTrackFor('video');
    const codecs = Object.fromEntries(
      this.player.getRepresentationsByType('video').map(({ id, codecs: codec }) => [id, codec]),
    );
    return this.player.getTracksFor('video').flatMap((track) =>
      track.bitrateList.map(({ width, height, bandwidth, id }) => {
        const codec = track.index === current.index ? codecs[id] : /codecs="([^"]*)"/.exec(track.codec)?.[1];
        return { width, height, bandwidth, codec, key: { track, id } };
      }),
    );
  }

  start({ track, id }) {
    if (this.player.getCurrentTrackFor('video').index !== track.index) this.player.setCurrentTrack(track);
    if (this.player.getCurrentRepresentationForType('video')?.id !== id)
      this.player.setRepresentationForTypeById('video', id, true);
  }

  switchTo({ id }) {
    this.player.setRepresentationForTypeById('video', id, false);
  }

  sound() {
    return this.player.getTracksFor('audio').map((key) => ({ lang: key.lang, key }));
  }

  hear(key) {
    this.player.setCurrentTrack(key);
  }

  subtitles() {
    return this.player.getTracksFor('text').map(({ lang }, key) => ({ lang, key }));
  }

  read(key) {
    this.player.enableText(true);
    this.player.setTextTrack(key);
  }

  async end() {
    this.player.destroy();
  }
}

/** The browser itself. It plays the source, with which the players' pictures are compared. */
class Browser {
  static version = () => '';

  constructor(video) {
    this.video = video;
  }

  async load(url) {
    const loaded = new Promise((resolve) => this.video.addEventListener('loadeddata', resolve, { once: true }));
    this.video.src = url;
    await loaded;
  }

  renditions() {
    return [{ width: this.video.videoWidth, height: this.video.videoHeight, codec: '', bandwidth: 0, key: null }];
  }

  start() {}

  sound() {
    return [];
  }

  subtitles() {
    return [];
  }

  async end() {
    this.video.removeAttribute('src');
    this.video.load();
  }
}

export const PLAYERS = { 'hls.js': HlsJs, 'Shaka Player': Shaka, 'dash.js': DashJs, source: Browser };
