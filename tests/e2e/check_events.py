"""Does TensorBoard's own reader see in the event files of a run what its metrics.jsonl says, and nothing twice?

    check_events.py FOLDER METRICS

Every number must be there as float32, at the step that is its line; histograms of all masks for every epoch in which
masks were learnt; and a PNG picture for every step that kept exemplars.
"""
import io
import json
import sys

import numpy
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PLACES = {"step", "epoch", "epochs", "steps"}
SERIES = {"groups", "representation"}


def numbers(record):
    """(tag, value) of a record, by the rules of docs/FORMATS.md."""
    group = record["stage"] if record["event"] == "epoch" else {"step": "test", "end": "run"}[record["event"]]
    for key, value in record.items():
        if isinstance(value, (int, float)) and key not in PLACES:
            yield f"{group}/{key}", value
        elif isinstance(value, list) and key in SERIES:
            yield from ((f"{group}/{key}/{i:03d}", item) for i, item in enumerate(value, 1))
        elif isinstance(value, dict):
            yield from ((f"{group}/{key}/{inner}", item) for inner, item in value.items()
                        if isinstance(item, (int, float)))


def check_histograms(events, epochs):
    tags = events.Tags()["histograms"]
    assert bool(tags) == bool(epochs), (tags, epochs)
    for tag in tags:
        found = events.Histograms(tag)
        assert [h.step for h in found] == epochs, tag
        for h in found:
            value = h.histogram_value
            assert sum(value.bucket) == value.num > 0, tag
            assert list(value.bucket_limit) == sorted(value.bucket_limit), tag
            assert value.min <= value.max == value.bucket_limit[-1], tag
    return len(tags)


def check_images(events, steps):
    found = events.Images("exemplars") if "exemplars" in events.Tags()["images"] else []
    assert [image.step for image in found] == steps, (found, steps)
    for image in found:
        picture = Image.open(io.BytesIO(image.encoded_image_string))
        picture.load()
        assert picture.format == "PNG" and picture.size == (image.width, image.height)
        assert len(set(picture.getdata())) > 100  # something is on it


def main(folder, metrics):
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0, "images": 0})
    events.Reload()
    expected, epochs, steps = {}, [], []
    for line, text in enumerate(open(metrics, encoding="utf-8"), 1):
        record = json.loads(text)
        for tag, value in numbers(record):
            expected.setdefault(tag, []).append((line, numpy.float32(value)))
        if "kept_params" in record:
            epochs.append(line)
        if record["event"] == "step":
            steps.append(line)
    found = {tag: [(s.step, numpy.float32(s.value)) for s in events.Scalars(tag)]
             for tag in events.Tags()["scalars"]}
    sparsity = found.pop("masks/sparsity", [])
    assert [step for step, _ in sparsity] == epochs
    assert all(0 <= value < 1 for _, value in sparsity)
    for tag in expected.keys() | found.keys():
        assert found.get(tag) == expected.get(tag), (tag, found.get(tag), expected.get(tag))
    n_masks = check_histograms(events, epochs)
    check_images(events, steps)
    print(f"{len(found)} curves with {sum(map(len, found.values()))} numbers, {n_masks} masks in {len(epochs)} epochs, "
          f"{len(steps)} pictures")


if __name__ == "__main__":
    main(*sys.argv[1:])
