// Reads a package: its HLS playlists, and the times in the boxes of its segments.

import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

import { byQuality } from './judge.mjs';

/**
 * Read a package by its HLS master playlist.
 *
 * A rendition's `times` are its pictures' presentation times in seconds, in order; `starts` are the begins of its
 * segments by the playlist, `firsts` the times of the first pictures in them.
 */
export async function readPackage(folder) {
  const text = await readFile(join(folder, 'master.m3u8'), 'utf8');
  const media = taggedLines(text, 'EXT-X-MEDIA');
  const variants = [...text.matchAll(/^#EXT-X-STREAM-INF:(.*)\r?\n(?:#.*\n)*([^#\s].*?)\r?$/gm)];
  const byUri = new Map(variants.map(([, listed, uri]) => [uri, attributes(listed)]));
  const renditions = [];
  for (const [uri, listed] of byUri) renditions.push(await readRendition(folder, uri, listed));
  const sound = media.filter((each) => each.TYPE === 'AUDIO');
  const subtitles = media.filter((each) => each.TYPE === 'SUBTITLES');
  const ends = [];
  for (const each of sound) if (each.URI) ends.push((await readTrack(folder, each.URI)).end);
  for (const each of subtitles) each.cues = await countCues(folder, each.URI);
  return {
    renditions: renditions.sort(byQuality),
    sound: languages(sound),
    subtitles: subtitles.map((each) => ({ lang: languageOf(each), cues: each.cues })),
    end: Math.max(...ends, ...renditions.map((each) => each.end)),
  };
}

/** The shortest code of a language, as players list it: "en" for "eng". */
export function languageOf(track) {
  return Intl.getCanonicalLocales(track.LANGUAGE || track.lang || 'und')[0];
}

/** The distinct languages of tracks, sorted; an unknown language counts as "und". */
function languages(tracks) {
  return [...new Set(tracks.map((each) => languageOf(each)))].sort();
}

async function readRendition(folder, uri, listed) {
  const [width, height] = listed.RESOLUTION.split('x').map(Number);
  const codec = listed.CODECS.split(',').find((each) => !/^(mp4a|ac-3|ec-3|opus|fLaC|stpp|wvtt)/i.test(each));
  return { width, height, codec, bandwidth: Number(listed.BANDWIDTH), ...(await readTrack(folder, uri)) };
}

async function readTrack(folder, uri) {
  const { header, segments } = mediaPlaylist(await readFile(join(folder, uri), 'utf8'));
  const base = join(folder, dirname(uri));
  const scale = timing(await bytesOf(base, header));
  const starts = [];
  const firsts = [];
  const times = [];
  let [start, end] = [0, 0];
  for (const segment of segments) {
    const samples = timesOf(await bytesOf(base, segment), scale);
    starts.push(start);
    firsts.push(samples.times[0]);
    times.push(...samples.times);
    start += segment.duration;
    end = Math.max(end, samples.end);
  }
  return { uri, starts, firsts, times: times.sort((one, other) => one - other), end };
}

/** How many cues of WebVTT a track has; a cue that continues in the next segment counts once. */
async function countCues(folder, uri) {
  const { segments } = mediaPlaylist(await readFile(join(folder, uri), 'utf8'));
  const texts = await Promise.all(segments.map((segment) => bytesOf(join(folder, dirname(uri)), segment)));
  return new Set(texts.flatMap((each) => each.toString().match(/^[\d:.]+(?= +-->)/gm) ?? [])).size;
}

function taggedLines(text, tag) {
  return [...text.matchAll(new RegExp(`^#${tag}:(.*?)\\r?$`, 'gm'))].map(([, listed]) => attributes(listed));
}

function attributes(listed) {
  const pairs = [...listed.matchAll(/([A-Z0-9-]+)=("[^"]*"|[^,]*)/g)];
  return Object.fromEntries(pairs.map(([, name, value]) => [name, value.replace(/^"|"$/g, '')]));
}

function mediaPlaylist(text) {
  const segments = [];
  let header = null;
  let [duration, range, position] = [0, null, 0];
  for (const line of text.split(/\r?\n/)) {
    const [, tag, value] = /^#([A-Z0-9-]+)(?::(.*))?$/.exec(line) ?? [null, '', line];
    if (tag === 'EXT-X-MAP') header = { uri: attributes(value).URI, range: rangeOf(attributes(value).BYTERANGE, 0) };
    else if (tag === 'EXTINF') duration = Number.parseFloat(value);
    else if (tag === 'EXT-X-BYTERANGE') range = rangeOf(value, position);
    else if (!tag && value && !value.startsWith('#')) {
      segments.push({ uri: value, range, duration });
      [position, range] = [range ? range.end : 0, null];
    }
  }
  return { header, segments };
}

function rangeOf(text, position) {
  if (!text) return null;
  const [size, offset] = text.split('@').map(Number);
  return { start: offset ?? position, end: (offset ?? position) + size };
}

async function bytesOf(base, { uri, range }) {
  const bytes = await readFile(join(base, decodeURIComponent(uri)));
  return range ? bytes.subarray(range.start, range.end) : bytes;
}

// Boxes of ISO/IEC 14496-12. Only the fields that determine a picture's time are read.

function* boxes(bytes) {
  for (let at = 0; at + 8 <= bytes.length;) {
    const short = bytes.readUInt32BE(at);
    const head = short === 1 ? 16 : 8;
    const size = short === 1 ? Number(bytes.readBigUInt64BE(at + 8)) : short || bytes.length - at;
    yield { type: bytes.toString('latin1', at + 4, at + 8), body: bytes.subarray(at + head, at + size) };
    at += size;
  }
}

function box(bytes, ...path) {
  return path.reduce((inside, type) => inside && [...boxes(inside)].find((each) => each.type === type)?.body, bytes);
}

/** A track's ticks in a second, the default duration of its samples, and the time at which its presentation begins. */
function timing(header) {
  const track = box(header, 'moov', 'trak');
  const mdhd = box(track, 'mdia', 'mdhd');
  const trex = box(header, 'moov', 'mvex', 'trex');
  return {
    ticks: mdhd.readUInt32BE(mdhd[0] ? 20 : 12),
    usual: trex.readUInt32BE(12),
    begin: editOf(box(track, 'edts', 'elst')),
  };
}

/** The time of the first picture that an edit list of one entry shows. */
function editOf(elst) {
  if (!elst || elst.readUInt32BE(4) === 0) return 0;
  const time = elst[0] ? Number(elst.readBigInt64BE(16)) : elst.readInt32BE(12);
  return Math.max(time, 0);
}

function timesOf(segment, { ticks, usual, begin }) {
  const times = [];
  let end = 0;
  for (const moof of [...boxes(segment)].filter((each) => each.type === 'moof')) {
    const traf = box(moof.body, 'traf');
    const tfdt = box(traf, 'tfdt');
    let time = tfdt[0] ? Number(tfdt.readBigUInt64BE(4)) : tfdt.readUInt32BE(4);
    for (const trun of [...boxes(traf)].filter((each) => each.type === 'trun'))
      for (const { duration, shift } of samplesOf(trun.body, durationOf(box(traf, 'tfhd')) ?? usual)) {
        times.push((time + shift - begin) / ticks);
        end = Math.max(end, (time + shift + duration - begin) / ticks);
        time += duration;
      }
  }
  return { times: times.sort((one, other) => one - other), end };
}

function durationOf(tfhd) {
  const flags = tfhd.readUIntBE(1, 3);
  if (!(flags & 0x8)) return undefined;
  return tfhd.readUInt32BE(8 + (flags & 0x1 ? 8 : 0) + (flags & 0x2 ? 4 : 0));
}

function samplesOf(trun, usual) {
  const flags = trun.readUIntBE(1, 3);
  const [has, width] = [(bit) => Boolean(flags & bit), [0x100, 0x200, 0x400, 0x800].filter((bit) => flags & bit).length * 4];
  let at = 8 + (has(0x1) ? 4 : 0) + (has(0x4) ? 4 : 0);
  return Array.from({ length: trun.readUInt32BE(4) }, () => {
    const duration = has(0x100) ? trun.readUInt32BE(at) : usual;
    const shift = has(0x800) ? trun.readInt32BE(at + width - 4) : 0;
    at += width;
    return { duration, shift };
  });
}
