// Play a package in hls.js, Shaka Player and dash.js, in a headless Chromium, and say what is wrong with it.

import { createReadStream, existsSync } from 'node:fs';
import { stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { basename, dirname, extname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chromium } from 'playwright-core';

import { alignmentFaults, byQuality, frameFaults, frameOf, listFaults, missingOf, playFaults, seekFaults, trackFaults } from './judge.mjs';
import { readPackage } from './package.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const LANES = [
  ['hls.js', 'master.m3u8'],
  ['Shaka Player', 'master.m3u8'],
  ['Shaka Player', 'manifest.mpd'],
  ['dash.js', 'manifest.mpd'],
];
const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const FLAGS = [
  ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
  ...['--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  '--autoplay-policy=no-user-gesture-required',
];
const KINDS = {
  ...{ '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.m3u8': 'application/vnd.apple.mpegurl' },
  ...{ '.mpd': 'application/dash+xml', '.vtt': 'text/vtt', '.mp4': 'video/mp4', '.m4s': 'video/iso.segment' },
};
const INSIDE = 0.001; // seconds after a picture's time: still the same picture, however times are rounded

/** Serve folders by the first part of the path, with byte ranges. What is asked for in vain is added to `lacking`. */
async function serve(folders, lacking) {
  const server = createServer(async (request, response) => {
    const [, name, ...rest] = decodeURIComponent(new URL(request.url, 'http://localhost').pathname).split('/');
    const path = join(folders[name] ?? '', normalize(`/${rest.join('/')}`));
    const found = folders[name] && (await stat(path).catch(() => null));
    if (!found?.isFile()) {
      if (folders[name]) lacking.push(rest.join('/'));
      response.writeHead(404).end();
      return;
    }
    const asked = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const start = asked ? Number(asked[1]) : 0;
    const end = Math.min(asked?.[2] ? Number(asked[2]) : Infinity, found.size - 1);
    response.writeHead(asked ? 206 : 200, {
      'Content-Type': KINDS[extname(path)] ?? 'application/octet-stream',
      'Content-Length': end - start + 1,
      'Accept-Ranges': 'bytes',
      ...(asked && { 'Content-Range': `bytes ${start}-${end}/${found.size}` }),
    });
    createReadStream(path, { start, end }).on('error', () => response.destroy()).pipe(response);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return server;
}

class Fault extends Error {}

/** Throw the first of some faults, with what they are about. */
function judge(about, faults) {
  if (faults.length) throw new Fault(`${about}: ${faults[0]}`);
}

/** One player with one manifest: loads it, asks the page to do things with it, and throws what the page hears of. */
class Lane {
  constructor(page, name, url, lacking) {
    Object.assign(this, { page, name, url, lacking });
  }

  /** Load the manifest, and start with one rendition. Returns the player's indices of all, in the order of `byQuality`. */
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
    const result = await this.page.evaluate(([name, called, values]) => window.watched[name][called](...values), [this.name, method, given]);
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

/** Load one rendition, seek to each segment, play it, and step to each picture that playing has skipped. */
async function playRendition(lane, pack, rendition, order, reference) {
  const about = `${rendition.width}x${rendition.height} ${rendition.codec}`;
  await lane.open(pack.renditions, order);
  // From the last segment to the first: each must be loaded by itself, and playing begins at the first.
  const targets = rendition.starts.map((start, index) => ({ time: start + INSIDE, first: rendition.firsts[index] })).reverse();
  const seeks = await lane.call(about, 'seekAll', targets);
  judge(about, seekFaults(rendition, targets, seeks, reference));
  const played = await lane.call(about, 'play');
  judge(about, playFaults(played, rendition.times[0], pack.end, frameOf(rendition)));
  const missing = missingOf(rendition.times, await lane.call(about, 'shown'));
  for (const time of missing) await lane.call(about, 'seek', time + INSIDE, time);
  const shown = await lane.call(about, 'shown');
  judge(about, frameFaults(rendition.times, shown));
  await lane.close();
  const { stall_s, ranges, dropped } = played;
  const facts = { pictures: shown.length, stepped: missing.length, seeks: seeks.length, stall_s, buffered: ranges, dropped };
  return { seeks, facts: { rendition: about, ...facts } };
}

/** Play from the smallest rendition to the largest and back, one switch after the other. */
async function playSwitches(lane, pack) {
  const sizes = pack.renditions.filter(({ codec }) => codec.slice(0, 4) === pack.renditions[0].codec.slice(0, 4));
  const steps = [...sizes.keys(), ...[...sizes.keys()].reverse().slice(1)];
  const about = 'switching';
  let [at, stall_s] = [0, 0];
  while (at < steps.length - 1) {
    const indices = await lane.open(pack.renditions, steps[at], false);
    const listed = Object.fromEntries(indices.map((index, order) => [index, sizes[order]]));
    const played = await lane.call(about, 'playSwitching', steps.slice(at).map((order) => indices[order]), listed);
    judge(about, playFaults(played, sizes[0].times[0], pack.end, frameOf(sizes[0])));
    const known = (await lane.call(about, 'shown')).filter(({ time }) => sizes[0].times.every((each) => Math.abs(each - time) > INSIDE));
    judge(about, known.length ? [`shows a picture of ${known[0].time} s, which the package lacks`] : []);
    judge(about, played.seen.length > 1 ? [] : [`never shows ${sizes[steps[at + 1]].height} lines after ${sizes[steps[at]].height}`]);
    at += played.seen.length - 1;
    stall_s = Math.max(stall_s, played.stall_s);
    await lane.close();
  }
  return { switches: at, stall_s };
}

/** Each sound and each subtitle track must be listed, and do something when it is chosen in a film that plays. */
async function playTracks(lane, pack) {
  const chosen = async (method, ...given) => {
    await lane.open(pack.renditions, 0, false);
    const result = await lane.call('tracks', method, ...given);
    await lane.close();
    return result;
  };
  const [sound, subtitles] = await chosen('tracks');
  judge('sound', trackFaults(pack.sound, [...new Set(sound)]));
  judge('subtitles', trackFaults(pack.subtitles.map((each) => each.lang), subtitles));
  for (const [index, lang] of sound.entries()) judge('sound', (await chosen('hear', index)) ? [] : [`${lang} is silent`]);
  for (const [index, lang] of subtitles.entries()) {
    const expected = pack.subtitles.filter((each) => each.lang === lang).map((each) => each.cues);
    const cues = await chosen('read', index, Math.max(...expected));
    judge('subtitles', expected.includes(cues) ? [] : [`${lang} has ${cues} cues; the package has ${expected}`]);
  }
  return { sound, subtitles };
}

async function playLane(lane, pack, reference, onRow) {
  const renditions = [];
  for (const [order, rendition] of pack.renditions.entries()) {
    const { facts, seeks } = await playRendition(lane, pack, rendition, order, reference);
    reference ??= seeks;
    renditions.push(facts);
    await onRow(rendition, facts);
  }
  return { renditions, reference, ...(await playSwitches(lane, pack)), ...(await playTracks(lane, pack)) };
}

/** The source's own pictures at the segments' begins; it must have the renditions' pictures at the same times. */
async function playSource(lane, pack) {
  const [rendition] = pack.renditions;
  await lane.open([], 0);
  const targets = rendition.starts.map((start, index) => ({ time: start + INSIDE, first: rendition.firsts[index] })).reverse();
  const seeks = await lane.call('source', 'seekAll', targets);
  const { width, height } = seeks[0];
  judge('source', seekFaults({ ...rendition, width, height }, targets, seeks));
  await lane.call('source', 'play');
  for (const time of missingOf(rendition.times, await lane.call('source', 'shown'))) await lane.call('source', 'seek', time + INSIDE, time);
  judge('source', frameFaults(rendition.times, await lane.call('source', 'shown')));
  await lane.close();
  return seeks;
}

/** The renditions that this browser can decode, and those that it cannot. */
async function playable(page, renditions) {
  const can = await page.evaluate((codecs) => codecs.map((each) => MediaSource.isTypeSupported(`video/mp4; codecs="${each}"`)), renditions.map((each) => each.codec));
  return [true, false].map((asked) => renditions.filter((_, index) => can[index] === asked));
}

async function playAll(page, folder, film, only, lacking) {
  const pack = await readPackage(folder);
  const [played, notPlayed] = await playable(page, pack.renditions);
  const result = { browser: page.context().browser().version(), notPlayed: notPlayed.map((each) => each.codec), players: [], faults: [] };
  result.faults.push(...alignmentFaults(pack.renditions));
  pack.renditions = played;
  const say = (what, ...given) => page.evaluate(([called, values]) => window[called](...values), [what, given]);
  await say('about', `${played.length} renditions of ${pack.end.toFixed(2)} s, ${played[0].times.length} pictures each, in Chromium ${result.browser}`);
  const under = (name) => new Lane(page, name, '', lacking);
  let reference = null;
  const tried = async (name, manifest, act) => {
    try {
      return await act(Object.assign(under(name), { url: manifest }));
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      result.faults.push(`${name}, ${manifest.split('/').at(-1)}: ${error.message}`);
      console.log(`  FAULT ${result.faults.at(-1)}`);
      await say('line', name, error.message, true);
      await under(name).close();
      return null;
    }
  };
  if (film) reference = await tried('source', film, (lane) => playSource(lane, pack));
  const versions = await page.evaluate(() => window.versions);
  for (const [name, manifest] of LANES.filter(([name]) => !only || name === only)) {
    await say('table', name, manifest);
    console.log(`${name} ${versions[name]}, ${manifest}`);
    const done = await tried(name, `/package/${manifest}`, (lane) => playLane(lane, pack, reference, async ({ width, height }, facts) => {
      const cells = [`${width}x${height}`, facts.pictures, facts.seeks, facts.buffered[0].map((each) => each.toFixed(2)).join(' to ')];
      console.log(`  ${cells.join('  ')}  (${facts.stepped} stepped to, longest stop ${facts.stall_s.toFixed(2)} s)`);
      await say('row', name, cells.map(String));
    }));
    if (!done) continue;
    reference ??= done.reference;
    const text = `${done.switches} switches, ${done.sound.length} sound, ${done.subtitles.length} subtitles`;
    console.log(`  ${text} (longest stop ${done.stall_s.toFixed(2)} s)`);
    await say('line', name, text, false);
    delete done.reference;
    result.players.push({ player: name, version: versions[name], manifest, ...done });
  }
  return result;
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { source: { type: 'string' }, picture: { type: 'string' }, player: { type: 'string' }, report: { type: 'string' } },
  });
  const [folder] = positionals;
  if (!folder) throw new Fault('usage: node play.mjs FOLDER [--source FILM] [--player NAME] [--picture FILE.png] [--report FILE.json]');
  const browser = BROWSERS.find((each) => existsSync(each));
  if (!browser) throw new Fault("there is no Chromium; Debian's package is chromium");
  const lacking = [];
  const server = await serve({ players: HERE, package: resolve(folder), source: values.source && dirname(resolve(values.source)) }, lacking);
  const launched = await chromium.launch({ executablePath: browser, args: FLAGS, headless: true });
  try {
    const page = await launched.newPage({ viewport: { width: 1280, height: 720 } });
    page.on('pageerror', (error) => console.error(`page: ${error.message}`));
    const root = `http://127.0.0.1:${server.address().port}`;
    await page.goto(`${root}/players/page.html`);
    await page.waitForFunction(() => window.isReady);
    const film = values.source && `/source/${encodeURIComponent(basename(values.source))}`;
    const result = await playAll(page, folder, film, values.player, lacking);
    if (values.picture) await page.screenshot({ path: values.picture, fullPage: true });
    if (values.report) await writeFile(values.report, `${JSON.stringify(result, null, 2)}\n`);
    for (const codec of result.notPlayed) console.log(`not played here: ${codec}`);
    if (result.faults.length) throw new Fault(result.faults[0]);
    console.log('all players show every picture at its time');
  } finally {
    await launched.close();
    server.close();
  }
}

main().catch((error) => {
  const isOurs = !(error instanceof Fault || error.code === 'ENOENT');
  console.error(isOurs ? error : `FAULT ${error.message}`);
  process.exitCode = 1;
});
