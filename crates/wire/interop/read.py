"""Reads messages of `+zstd-dict2-…` by python-zstandard: FOLDER has `dictionary`, and for each message its frames as
`N.zst` and its payload as `N.txt`.

usage: read.py FOLDER
"""

import io
import pathlib
import sys

import zstandard

folder = pathlib.Path(sys.argv[1])
dictionary = zstandard.ZstdCompressionDict((folder / "dictionary").read_bytes())
decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)


def one_by_one(frames):
    """Frame by frame, each by a call of its own."""
    read = b""
    while frames:
        frame = decompressor.decompressobj()
        read += frame.decompress(frames)
        frames = frame.unused_data
    return read


def streamed(frames):
    with decompressor.stream_reader(io.BytesIO(frames), read_across_frames=True) as reader:
        return reader.read()


def in_pieces(frames):
    decompress = decompressor.decompressobj(read_across_frames=True).decompress
    return b"".join(decompress(frames[at : at + 7]) for at in range(0, len(frames), 7))


count = 0
for path in sorted(folder.glob("*.zst")):
    frames, payload = path.read_bytes(), path.with_suffix(".txt").read_bytes()
    for read in (one_by_one, streamed, in_pieces):
        assert read(frames) == payload, (path, read.__name__)
    count += 1
print(count)
