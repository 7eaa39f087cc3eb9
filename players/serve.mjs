// Serves files to this machine over HTTP.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const KINDS = {
  ...{ '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.m3u8': 'application/vnd.apple.mpegurl' },
  ...{ '.mpd': 'application/dash+xml', '.vtt': 'text/vtt', '.mp4': 'video/mp4', '.m4s': 'video/iso.segment' },
};

/** Serve folders by the first part of the path, with byte ranges. Requested files that do not exist are added to `lacking`. */
export async function serve(folders, lacking) {
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
    createReadStream(path, { start, end })
      .on('error', () => response.destroy())
      .pipe(response);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return server;
}
