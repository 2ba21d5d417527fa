# Adds up each metric of each block over the agents' own records of a result's folder. Prints of each
# sum, as a line of JSON: cell, round, position, metric, agents, whether every bucket is that of the
# result, count, p50, p90, p99, maximum.
import json, sys
from importlib.metadata import version
from pathlib import Path
from hdrh.histogram import HdrHistogram
if version("hdrhistogram") != "0.10.8": raise ImportError("expected hdrhistogram 0.10.8")
folder = Path(sys.argv[1])
def buckets(one):
    return [(b.value_iterated_to, b.count_added_in_this_iter_step) for b in one.get_recorded_iterator()]
for cell in json.loads((folder / "result.json").read_text())["cells"]:
    for block in cell["blocks"]:
        name = f"{block['round']:03}-{block['position']:03}-{cell['id']}.agent-*.json"
        own = [json.loads(file.read_text())["latency"] for file in (folder / "running").glob(name)]
        for metric, stated in block["record"]["latency"].items():
            sum = HdrHistogram(1, 60_000_000_000, 3)
            for one in own:
                if metric in one:
                    sum.add(HdrHistogram.decode(one[metric]["v2_deflate"]))
            figures = [sum.get_value_at_percentile(p) for p in (50.0, 90.0, 99.0, 100.0)]
            same = buckets(sum) == buckets(HdrHistogram.decode(stated["v2_deflate"]))
            place = (cell["id"], block["round"], block["position"])
            print(json.dumps([*place, metric, len(own), same, sum.get_total_count(), *figures]))
