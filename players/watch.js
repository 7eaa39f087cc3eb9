// Watches one player in the page: the pictures that it shows, its stops and jumps, and its buffer.

import { PLAYERS } from './players.js';

const STEP_LIMIT_S = 15; // for one seek, or a track's first sound or subtitle
const AT_END_S = 0.05;
const INSIDE = 0.002; // seconds within which the picture stays the same
const THUMB = [64, 36]; // pixels: enough to tell one picture of a film from another

/** A film in one player. Each picture that the browser presents is in `frames`, by its time in microseconds. */
export class Watch {
  constructor(name, video) {
    [this.name, this.video] = [name, video];
    this.faults = [];
    this.frames = new Map();
    this.last = null;
    this.asked = 0; // requested seeks that have not begun
    this.jumps = []; // where the player seeked by itself, as players do at a gap
    this.ended = new AbortController();
    const { signal } = this.ended;
    video.addEventListener('error', () => this.faults.push(`the browser: ${video.error?.message}`), { signal });
    video.addEventListener('seeking', () => this.#seeking(), { signal });
    this.player = new PLAYERS[name](video, (text) => this.faults.push(text));
    this.#listen();
  }

  async open(url, order, whole) {
    await within(STEP_LIMIT_S, this.player.load(url, order, whole), 'the player does not load the manifest', this);
    return this.player.renditions().map(({ key, ...facts }) => facts);
  }

  /** Choose a rendition, and wait until the player is ready: before that it may still seek to the beginning. */
  async start(index) {
    this.player.start(this.player.renditions()[index].key);
    await until(() => this.video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA && !this.video.seeking, STEP_LIMIT_S, this);
    this.jumps.length = 0;
  }

  /** Seek, and return the picture that is then shown: its time, its size, and a small grey copy. */
  async seek(time, expected) {
    this.#seekTo(time);
    const isShown = () => !this.video.seeking && this.last && (expected === undefined || near(this.last.mediaTime, expected));
    await until(() => !this.video.seeking, STEP_LIMIT_S, this);
    await until(isShown, 1, this);
    // Chromium sometimes ends a seek without reporting the picture: then seek to another time within the same picture.
    if (!this.video.seeking && !this.last) this.#seekTo(time + INSIDE);
    await until(isShown, STEP_LIMIT_S, this);
    return {
      time,
      shown: this.last?.mediaTime,
      loaded: ranges(this.video.buffered),
      width: this.video.videoWidth,
      height: this.video.videoHeight,
      thumb: this.#thumb(),
    };
  }

  async seekAll(targets) {
    const seen = [];
    for (const { time, first } of targets) {
      seen.push(await this.seek(time, first));
      if (this.faults.length || !near(seen.at(-1).shown, first)) break;
    }
    return seen;
  }

  /** Play to the end. `onMove` runs every 50 ms. */
  async play(onMove = () => {}) {
    const { video } = this;
    let [moved, at, stall_s] = [performance.now(), video.currentTime, 0];
    const limit_s = 3 * (video.duration - at) + 20;
    // dash.js does not always report that the film has ended; the film then stands still near its end.
    const isOver = () => video.ended || (video.currentTime > video.duration - AT_END_S && performance.now() - moved > 1000);
    await video.play();
    await until(
      () => {
        onMove();
        if (video.currentTime !== at) [moved, at] = [performance.now(), video.currentTime];
        if (video.currentTime < video.duration - AT_END_S) stall_s = Math.max(stall_s, (performance.now() - moved) / 1000);
        return isOver();
      },
      limit_s,
      this,
    );
    const { droppedVideoFrames, totalVideoFrames } = video.getVideoPlaybackQuality();
    return {
      ...{ ended: isOver(), at: video.currentTime, stall_s, jumps: this.jumps, duration: video.duration },
      ...{ ranges: ranges(video.buffered), dropped: droppedVideoFrames, decoded: totalVideoFrames },
    };
  }

  /** Play to the end, and on the way switch through renditions by index, each as soon as the one before it is seen. */
  async playSwitching(indices, sizes) {
    const seen = [];
    const all = this.player.renditions();
    // Two pixels of tolerance: players round the size of pictures whose pixels are not square differently.
    const isSeen = (index) =>
      Math.abs(this.last?.width - sizes[index].width) <= 2 && Math.abs(this.last?.height - sizes[index].height) <= 2;
    const played = await this.play(() => {
      if (seen.length === indices.length || !isSeen(indices[seen.length])) return;
      seen.push(indices[seen.length]);
      if (seen.length < indices.length) this.player.switchTo(all[indices[seen.length]].key);
    });
    return { ...played, seen };
  }

  tracks() {
    const [sound, subtitles] = [this.player.sound(), this.player.subtitles()];
    return [sound, subtitles].map((each) => each.map(({ lang }) => lang || 'und'));
  }

  /** Choose a sound track while the film plays. Returns how many bytes of sound are decoded in the next second. */
  async hear(index) {
    await this.video.play();
    this.player.hear(this.player.sound()[index].key);
    const [at, before] = [this.video.currentTime, this.video.webkitAudioDecodedByteCount];
    await until(() => this.video.currentTime > at + 1, STEP_LIMIT_S, this);
    return this.video.webkitAudioDecodedByteCount - before;
  }

  /** Choose a subtitle track while the film plays. Returns how many cues it has, by the end of the film at the latest. */
  async read(index, expected) {
    await this.video.play();
    this.player.read(this.player.subtitles()[index].key);
    await until(() => this.#cues().size >= expected || this.video.ended, 2 * this.video.duration + STEP_LIMIT_S, this);
    return this.#cues().size;
  }

  shown() {
    return [...this.frames].map(([micros, { width, height }]) => ({ time: micros / 1e6, width, height }));
  }

  async close() {
    this.ended.abort();
    await this.player.end();
  }

  #cues() {
    const tracks = [...this.video.textTracks].filter((each) => each.mode !== 'disabled');
    return new Set(tracks.flatMap((each) => [...(each.cues ?? [])].map((cue) => cue.startTime)));
  }

  #seekTo(time) {
    this.last = null;
    this.asked += 1;
    this.video.currentTime = time;
  }

  #seeking() {
    if (this.asked > 0) this.asked -= 1;
    else this.jumps.push(this.video.currentTime);
  }

  #listen() {
    this.video.requestVideoFrameCallback((_, { mediaTime, width, height }) => {
      if (this.ended.signal.aborted) return;
      this.last = { mediaTime, width, height };
      this.frames.set(Math.round(mediaTime * 1e6), this.last);
      this.#listen();
    });
  }

  #thumb() {
    const canvas = new OffscreenCanvas(...THUMB);
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.imageSmoothingQuality = 'high';
    context.drawImage(this.video, 0, 0, ...THUMB);
    const { data } = context.getImageData(0, 0, ...THUMB);
    return Array.from({ length: data.length / 4 }, (_, at) => (data[4 * at] + 2 * data[4 * at + 1] + data[4 * at + 2]) >> 2);
  }
}

function near(one, other) {
  return Math.abs(one - other) < 0.001;
}

function ranges(buffered) {
  return Array.from({ length: buffered.length }, (_, at) => [buffered.start(at), buffered.end(at)]);
}

/** Wait until something is true or the player has a fault, for at most `limit_s`. */
async function until(isTrue, limit_s, watch) {
  const end = performance.now() + limit_s * 1000;
  while (!isTrue() && performance.now() < end && !watch.faults.length) await new Promise((go) => setTimeout(go, 50));
}

async function within(limit_s, promise, otherwise, watch) {
  let isDone = false;
  await Promise.race([promise.then(() => (isDone = true)), until(() => isDone, limit_s, watch)]);
  if (!isDone) watch.faults.push(otherwise);
}
