"""Is this a trace that Perfetto opens, and does it add up?   trace.py FILE RUNS

Trace Event Format: "X" events with name, cat, ts, dur, pid, tid and args; starts never fall;
a run holds its pieces, which lie one after the other and fill it.
"""
import json
import sys

trace = json.load(open(sys.argv[1]))
assert trace["otherData"]["dropped"] == 0, trace["otherData"]
meta = [e for e in trace["traceEvents"] if e["ph"] == "M"]
events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
assert len(meta) + len(events) == len(trace["traceEvents"]) and {e["name"] for e in meta} == {"process_name",
    "thread_name"}
for e in events:
    assert isinstance(e["name"], str) and isinstance(e["cat"],
                                                     str) and e["name"] and e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] == 1 and e["tid"] == 1, e
    a = e["args"]
    if e["cat"] not in ("run", "session"):
        assert a["node"] == e["name"] and a["op"] == e["cat"] and a["operands"] and a["result"] and a["dtype"] and a["flops"] >= 0 and a["bytes"] > 0, e
        assert a["GFLOP/s"] >= 0 and (a["flops"] == 0 or e["dur"] == 0
                                      or abs(a["flops"] / a["GFLOP/s"] / 1e3 / e["dur"] - 1) < 0.05), e
starts = [e["ts"] for e in events]
assert starts == sorted(starts)
runs = [e for e in events if e["cat"] == "run"]
assert len(runs) == int(sys.argv[2]), runs
for i, r in enumerate(runs):
    inside = [e for e in events[events.index(r) + 1:] if e["cat"] != "run"
              and (i + 1 == len(runs) or e["ts"] < runs[i + 1]["ts"])]
    at = r["ts"]
    for e in inside:
        assert abs(e["ts"] - at) < 0.01, (e, at)     # microseconds, printed with three places
        at = e["ts"] + e["dur"]
    assert abs(sum(e["dur"] for e in inside) - r["dur"]) < 0.01 * (1 + len(inside)), (r, inside)
print(len(runs), "runs;", *sorted({e["cat"] for e in events}))
