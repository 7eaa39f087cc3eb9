// Play a package in hls.js, Shaka Player and dash.js, in a headless Chromium, and report the faults.

import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chromium } from 'playwright-core';

import { alignmentFaults } from './judge.mjs';
import { Fault, Lane, playLane, playSource } from './lane.mjs';
import { readPackage } from './package.mjs';
import { serve } from './serve.mjs';

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

/** Plays a package in the players of one page, and collects the results and the faults. */
class Show {
  constructor(page, pack, lacking) {
    Object.assign(this, { page, pack, lacking, reference: null });
    this.result = {
      browser: page.context().browser().version(),
      not_played: [],
      players: [],
      faults: alignmentFaults(pack.renditions),
    };
  }

  /** Leave out the renditions that this browser cannot decode, and say so. */
  async leaveOut() {
    const { renditions, end } = this.pack;
    const supported = await this.page.evaluate(
      (codecs) => codecs.filter((each) => MediaSource.isTypeSupported(`video/mp4; codecs="${each}"`)),
      renditions.map((each) => each.codec),
    );
    this.pack.renditions = renditions.filter(({ codec }) => supported.includes(codec));
    const named = renditions
      .filter(({ codec }) => !supported.includes(codec))
      .map(({ width, height, codec }) => `${width}x${height} ${codec}`);
    this.result.not_played.push(...named);
    for (const each of named) console.log(`not played here: ${each}`);
    if (!this.pack.renditions.length) throw new Fault('this Chromium can decode no rendition');
    const pictures = `${this.pack.renditions[0].times.length} pictures in ${end.toFixed(2)} s`;
    const about = [`${this.pack.renditions.length} renditions`, pictures, `Chromium ${this.result.browser}`];
    await this.say('about', [...about, ...named.map((each) => `not played: ${each}`)].join(' · '));
  }

  async playSource(film) {
    this.reference = await this.tried('source', film, (lane) => playSource(lane, this.pack));
    await this.say('drop', 'source');
  }

  async play(name, manifest) {
    const version = await this.page.evaluate((named) => window.versions[named], name);
    console.log(`${name} ${version}, ${manifest}`);
    await this.say('table', name, manifest);
    const act = (lane) => playLane(lane, this.pack, this.reference, (rendition, facts) => this.#row(name, rendition, facts));
    const done = await this.tried(name, `/package/${manifest}`, act);
    if (!done) return;
    const { seeks, ...facts } = done;
    this.reference ??= seeks;
    const text = `${facts.switches} switches; tracks: ${facts.sound.length} of sound, ${facts.subtitles.length} of subtitles`;
    console.log(`  ${text} (longest stop ${facts.stall_s.toFixed(2)} s)`);
    await this.say('line', name, text, false);
    this.result.players.push({ player: name, version, manifest, ...facts });
  }

  /** Show a picture of the film in each player, and write the page as a PNG. */
  async picture(path) {
    for (const [name, manifest] of LANES.filter(([each], index) => LANES.findIndex(([other]) => other === each) === index))
      await this.tried(name, `/package/${manifest}`, async (lane) => {
        await lane.open(this.pack.renditions, this.pack.renditions.length - 1);
        await lane.call('picture', 'seek', this.pack.end / 2);
      });
    await this.page.screenshot({ path, fullPage: true });
  }

  /** Call `act` with a player, and return its result. A fault is recorded; then the result is null. */
  async tried(name, url, act) {
    const lane = new Lane(this.page, name, url, this.lacking);
    try {
      return await act(lane);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.result.faults.push(`${name}, ${basename(url)}: ${error.message}`);
      console.log(`  FAULT ${error.message}`);
      await this.say('line', name, error.message, true);
      await lane.close();
      return null;
    }
  }

  say(what, ...given) {
    return this.page.evaluate(([called, values]) => window[called](...values), [what, given]);
  }

  async #row(name, { width, height }, { pictures, seeks, buffered, stepped, stall_s }) {
    const cells = [`${width}x${height}`, `${pictures}`, `${seeks}`, buffered[0].map((each) => each.toFixed(2)).join(' to ')];
    console.log(`  ${cells.join('  ')}  (${stepped} stepped to, longest stop ${stall_s.toFixed(2)} s)`);
    await this.say('row', name, cells);
  }
}

/** Return the keys in a file for `codecfleet ladder --keys`: hexadecimal, by their IDs. */
async function readKeys(path) {
  const text = (await readFile(path, 'utf8')).replaceAll('-', '').toLowerCase();
  const [kids, keys] = ['kid', 'key'].map((name) => [...text.matchAll(new RegExp(`^${name} *= *"(.*?)"`, 'gm'))]);
  return Object.fromEntries(kids.map(([, kid], index) => [kid, keys[index][1]]));
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      source: { type: 'string' },
      keys: { type: 'string' },
      picture: { type: 'string' },
      player: { type: 'string' },
      report: { type: 'string' },
    },
  });
  const [folder] = positionals;
  if (!folder)
    throw new Fault('usage: node play.mjs FOLDER [--source FILM] [--keys FILE.toml] [--player NAME] [--picture FILE.png] [--report FILE.json]');
  const browser = BROWSERS.find((each) => existsSync(each));
  if (!browser) throw new Fault("there is no Chromium; Debian's package is chromium");
  const lacking = [];
  const server = await serve(
    { players: HERE, package: resolve(folder), source: values.source && dirname(resolve(values.source)) },
    lacking,
  );
  const launched = await chromium.launch({ executablePath: browser, args: FLAGS, headless: true });
  try {
    const page = await launched.newPage({ viewport: { width: 1100, height: 400 } });
    page.on('pageerror', (error) => console.error(`page: ${error.message}`));
    const root = `http://127.0.0.1:${server.address().port}`;
    await page.goto(`${root}/players/page.html`);
    await page.waitForFunction(() => window.isReady);
    if (values.keys) await page.evaluate((keys) => (window.keys = keys), await readKeys(values.keys));
    const show = new Show(page, await readPackage(folder), lacking);
    await show.leaveOut();
    if (values.source) await show.playSource(`/source/${encodeURIComponent(basename(values.source))}`);
    for (const [name, manifest] of LANES.filter(([each]) => !values.player || values.player === each))
      await show.play(name, manifest);
    if (values.picture) await show.picture(values.picture);
    const { result } = show;
    if (values.report) await writeFile(values.report, `${JSON.stringify(result, null, 2)}\n`);
    if (result.faults.length) throw new Fault(result.faults[0]);
    console.log('all players show every picture at its time');
  } finally {
    await launched.close();
    server.close();
  }
}

main().catch((error) => {
  const said = error.code === 'ENOENT' ? `there is no ${error.path}` : error.message;
  console.error(error instanceof Fault || error.code === 'ENOENT' ? `FAULT ${said}` : error);
  process.exitCode = 1;
});
