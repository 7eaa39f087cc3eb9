// The checks of one player with one package.

import {
  byQuality,
  familyOf,
  frameFaults,
  frameOf,
  listFaults,
  missingOf,
  playFaults,
  seekFaults,
  trackFaults,
  unknownFaults,
} from './judge.mjs';
import { languageOf } from './package.mjs';

const INSIDE = 0.001; // seconds after a picture's time: still the same picture, however times are rounded

/** A fault of a package or a player, in one line. */
export class Fault extends Error {}

/** Throw the first fault, if there is any, after the text `about`. */
function judge(about, faults) {
  if (faults.length) throw new Fault(`${about}: ${faults[0]}`);
}

/** One player with one manifest. Its methods call the player in the page, and throw the faults that occur there. */
export class Lane {
  constructor(page, name, url, lacking) {
    Object.assign(this, { page, name, url, lacking });
  }

  /** Load the manifest, and start with one rendition. Returns the player's indices of all renditions, by `byQuality`. */
  async open(expected, order, whole = true) {
    this.lacking.length = 0;
    const listed = await this.page.evaluate((given) => window.watch(...given), [this.name, this.url, order, whole]);
    await this.heard('loading');
    if (this.name !== 'source') judge('loading', listFaults(expected, listed));
    const indices = [...listed.keys()].sort((one, other) => byQuality(listed[one], listed[other]));
    await this.call('loading', 'start', indices[order]);
    return indices;
  }

  async call(about, method, ...given) {
    const result = await this.page.evaluate(
      ([name, called, values]) => window.watched[name][called](...values),
      [this.name, method, given],
    );
    await this.heard(about);
    return result;
  }

  async heard(about) {
    if (this.lacking.length) throw new Fault(`${about}: it asks for ${this.lacking[0]}, which the package lacks`);
    judge(about, await this.page.evaluate((name) => window.watched[name].faults, this.name));
  }

  async close() {
    await this.page.evaluate((name) => window.watched[name]?.close(), this.name);
  }
}

/** The seeks to each segment, from the last to the first: so each is loaded by itself, and playback begins at the first. */
function targetsOf({ starts, firsts }) {
  return starts.map((start, index) => ({ time: start + INSIDE, first: firsts[index] })).reverse();
}

/** Play to the end, and step to each picture that playing has skipped. Returns how it played, and the pictures by time. */
async function playThrough(lane, about, { times }) {
  const played = await lane.call(about, 'play');
  const missing = missingOf(times, await lane.call(about, 'shown'));
  if (played.ended) for (const time of missing) await lane.call(about, 'seek', time + INSIDE, time);
  return { played, stepped: missing.length, shown: await lane.call(about, 'shown') };
}

/** Load one rendition, seek to each segment, and play it. */
async function playRendition(lane, pack, rendition, order, reference) {
  const about = `${rendition.width}x${rendition.height} ${rendition.codec}`;
  await lane.open(pack.renditions, order);
  const targets = targetsOf(rendition);
  const seeks = await lane.call(about, 'seekAll', targets);
  judge(about, seekFaults(rendition, targets, seeks, reference));
  const { played, stepped, shown } = await playThrough(lane, about, rendition);
  judge(about, playFaults(played, rendition.times[0], pack.end, frameOf(rendition)));
  judge(about, frameFaults(rendition.times, shown));
  await lane.close();
  const { stall_s, ranges, dropped } = played;
  const facts = { pictures: shown.length, stepped, seeks: seeks.length, stall_s, buffered: ranges, dropped };
  return { seeks, facts: { rendition: about, ...facts } };
}

/** Switch through all sizes of each codec while the film plays. */
async function playSwitches(lane, pack) {
  const codecs = new Set(pack.renditions.map(familyOf));
  let [switches, stall_s] = [0, 0];
  for (const codec of codecs) {
    const orders = [...pack.renditions.keys()].filter((order) => familyOf(pack.renditions[order]) === codec);
    const sizes = orders.filter((order, index) => pack.renditions[order].height !== pack.renditions[orders[index - 1]]?.height);
    const done = await playUpAndDown(lane, pack, [...sizes, ...sizes.toReversed().slice(1)]);
    [switches, stall_s] = [switches + done.switches, Math.max(stall_s, done.stall_s)];
  }
  return { switches, stall_s };
}

/** Play the renditions `steps` one after the other. If the film ends before the last one, it is played again. */
async function playUpAndDown(lane, pack, steps) {
  const first = pack.renditions[steps[0]];
  const about = 'switching';
  let [switches, stall_s] = [0, 0];
  while (switches < steps.length - 1) {
    const left = steps.slice(switches);
    const indices = await lane.open(pack.renditions, left[0], false);
    const sizes = Object.fromEntries(indices.map((index, order) => [index, pack.renditions[order]]));
    const played = await lane.call(
      about,
      'playSwitching',
      left.map((order) => indices[order]),
      sizes,
    );
    judge(about, playFaults(played, first.times[0], pack.end, frameOf(first)));
    judge(about, unknownFaults(first.times, await lane.call(about, 'shown')));
    const [from, to] = left.map((order) => pack.renditions[order].height);
    judge(about, played.seen.length > 1 ? [] : [`it does not go from ${from} lines to ${to}`]);
    switches += played.seen.length - 1;
    stall_s = Math.max(stall_s, played.stall_s);
    await lane.close();
  }
  return { switches, stall_s };
}

/** Each sound and each subtitle track must be listed, and have sound or cues when it is chosen during playback. */
async function playTracks(lane, pack) {
  const chosen = async (method, ...given) => {
    await lane.open(pack.renditions, 0, false);
    const result = await lane.call('tracks', method, ...given);
    await lane.close();
    return result;
  };
  const listed = await chosen('tracks');
  const [sound, subtitles] = listed.map((langs) => langs.map((lang) => languageOf({ lang })));
  judge('sound', trackFaults(pack.sound, [...new Set(sound)]));
  judge(
    'subtitles',
    trackFaults(
      pack.subtitles.map((each) => each.lang),
      subtitles,
    ),
  );
  for (const [index, lang] of sound.entries()) judge('sound', (await chosen('hear', index)) ? [] : [`${lang} is silent`]);
  for (const [index, lang] of subtitles.entries()) {
    const expected = pack.subtitles.filter((each) => each.lang === lang).map((each) => each.cues);
    const cues = await chosen('read', index, Math.max(...expected));
    judge('subtitles', expected.includes(cues) ? [] : [`${lang} has ${cues} cues; the package has ${expected}`]);
  }
  return { sound, subtitles };
}

/** Make all checks of one player with one manifest. `onRow` is called for each rendition that has been played. */
export async function playLane(lane, pack, reference, onRow) {
  const renditions = [];
  let seeks = reference;
  for (const [order, rendition] of pack.renditions.entries()) {
    const played = await playRendition(lane, pack, rendition, order, seeks);
    seeks ??= played.seeks;
    renditions.push(played.facts);
    await onRow(rendition, played.facts);
  }
  return { seeks, renditions, ...(await playSwitches(lane, pack)), ...(await playTracks(lane, pack)) };
}

/** Return the source's pictures where segments begin. It must have the renditions' pictures at the same times. */
export async function playSource(lane, pack) {
  const [rendition] = pack.renditions;
  await lane.open([], 0);
  const targets = targetsOf(rendition);
  const seeks = await lane.call('source', 'seekAll', targets);
  const { width, height } = seeks[0];
  judge('source', seekFaults({ ...rendition, width, height }, targets, seeks));
  const { shown } = await playThrough(lane, 'source', rendition);
  judge('source', frameFaults(rendition.times, shown));
  await lane.close();
  return seeks;
}
