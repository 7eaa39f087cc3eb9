// Finds the faults in what a player did, one line for each.

const SAME_S = 0.001;
const STALL_LIMIT_S = 5; // a busy machine without a GPU stalls too; a hole in the buffer never ends
const NOISE = 0.5; // of 255: a picture may be nearer to another one by this much, as in a film that stands still
const OTHER_PICTURE = 20; // of 255, the mean difference of two small grey pictures: renditions of one picture differ by less

const near = (one, other, by = SAME_S) => Math.abs(one - other) <= by;
const at = (seconds) => `${Number(seconds.toFixed(3))} s`;
const named = ({ width, height, codec }) => `${width}x${height} ${codec.toLowerCase()}`;

/** The order in which renditions are compared: by codec, then from the smallest to the largest. */
export function byQuality(one, other) {
  return familyOf(one).localeCompare(familyOf(other)) || one.height - other.height || one.bandwidth - other.bandwidth;
}

/** The codec without its profile and level: players switch within one. */
export function familyOf({ codec }) {
  return codec.split('.')[0];
}

/** The renditions that a player lists must be those of the package, in any order. */
export function listFaults(expected, listed) {
  const [own, its] = [expected, [...listed].sort(byQuality)].map((each) => each.map(named).join(', '));
  return own === its ? [] : [`it lists ${its || 'nothing'}; the package has ${own}`];
}

/** The tracks that a player lists must be those of the package, in any order. */
export function trackFaults(expected, seen) {
  const [own, its] = [expected, seen].map((each) => each.toSorted().join(', ') || 'none');
  return own === its ? [] : [`it has ${its}; the package has ${own}`];
}

/** Each seek to a segment's begin must show the segment's first picture, and the reference's picture of that time. */
export function seekFaults(rendition, targets, seen, reference) {
  const faults = targets.flatMap(({ time, first }, index) => {
    const segment = `segment ${rendition.starts.length - index}, which begins at ${at(time)}`;
    const got = seen[index];
    if (!got) return [`no seek to ${segment}, because an earlier seek failed`];
    if (got.shown === undefined) return [`no picture after a seek to ${segment} (loaded: ${rangesOf(got.loaded)})`];
    if (!near(got.shown, first))
      return [`a seek to ${segment}, shows the picture of ${at(got.shown)}; the segment begins with that of ${at(first)}`];
    if (!near(got.width, rendition.width, 2) || !near(got.height, rendition.height, 2))
      return [`a seek to ${segment}, shows ${got.width}x${got.height} pixels`];
    return reference ? pictureFaults(`a seek to ${segment}`, got.thumb, reference, index) : [];
  });
  return faults.slice(0, 1);
}

/** A picture must be nearer to the reference's picture of its time than to those of other times. */
function pictureFaults(about, thumb, reference, index) {
  const differences = reference.map((each) => difference(thumb, each.thumb));
  const [own, least] = [differences[index], Math.min(...differences)];
  const nearest = reference[differences.indexOf(least)];
  if (own > OTHER_PICTURE) return [`${about}, shows another picture (mean difference ${own.toFixed(1)} of 255)`];
  return own > least + NOISE ? [`${about}, shows the picture of ${at(nearest.shown)}`] : [];
}

function rangesOf(ranges) {
  return ranges.map((each) => each.map(at).join(' to ')).join(', ') || 'nothing';
}

/** Playing must reach the end in one piece: no jump, no long stop, one range in the buffer from begin to end. */
export function playFaults(played, begin, end, frame_s) {
  const { ended, jumps, stall_s, ranges, duration } = played;
  const faults = [];
  if (!ended) faults.push(`playing stops at ${at(played.at)}`);
  if (jumps.length) faults.push(`the player jumps to ${at(jumps[0])}`);
  if (stall_s > STALL_LIMIT_S) faults.push(`the picture stands still for ${at(stall_s)}`);
  if (ranges.length !== 1) faults.push(`the buffer has ${ranges.length} ranges: ${rangesOf(ranges)}`);
  else if (!near(ranges[0][0], begin, frame_s) || !near(ranges[0][1], end, frame_s))
    faults.push(`the buffer is ${rangesOf(ranges)}, the package ${at(begin)} to ${at(end)}`);
  if (!near(duration, end, frame_s)) faults.push(`the duration is ${at(duration)}, the package's ${at(end)}`);
  return faults;
}

/** Every picture of the package must have been shown at its own time, and no other. */
export function frameFaults(expected, shown) {
  const missing = missingOf(expected, shown);
  const faults = missing.length
    ? [`${missing.length} of ${expected.length} pictures are never shown, the first at ${at(missing[0])}`]
    : [];
  return [...faults, ...unknownFaults(expected, shown)];
}

/** No picture may be shown at a time that the package lacks. */
export function unknownFaults(expected, shown) {
  const unknown = shown.filter(({ time }) => !expected.some((each) => near(each, time)));
  return unknown.length ? [`${unknown.length} pictures have times that the package lacks, such as ${at(unknown[0].time)}`] : [];
}

/** The times of the pictures that have not been shown yet. */
export function missingOf(expected, shown) {
  return expected.filter((each) => !shown.some(({ time }) => near(each, time)));
}

/** All renditions have the same pictures at the same times, and their segments begin where the playlist says. */
export function alignmentFaults(renditions) {
  const [first] = renditions;
  return renditions.flatMap((each) => {
    const early = each.firsts.findIndex((time, index) => !near(time, each.starts[index] + each.firsts[0], frameOf(each)));
    if (early >= 0)
      return [
        `${each.uri}: segment ${early + 1} begins at ${at(each.firsts[early])}, by the playlist at ${at(each.starts[early])}`,
      ];
    const isSame =
      each.times.length === first.times.length && each.times.every((time, index) => near(time, first.times[index]));
    return isSame ? [] : [`${each.uri} has other picture times than ${first.uri}`];
  });
}

/** The shortest time between two pictures of a rendition. */
export function frameOf({ times }) {
  return Math.min(...times.slice(1).map((time, index) => time - times[index]));
}

function difference(one, other) {
  return one.reduce((sum, value, index) => sum + Math.abs(value - other[index]), 0) / one.length;
}
