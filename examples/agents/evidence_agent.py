"""An external agent for `eggine compile --agent` that learns from evidence.

For each region it keeps what every number of a schedule cost when it was tried, and proposes the legal
neighbours of the best schedules whose numbers did best so far. Rejected schedules teach it, too: what
was refused is not tried again. The protocol is described in docs/external-agents.md. Only the standard
library is used.
"""

import json
import sys
from collections import defaultdict


def say(**message):
    print(json.dumps(message), flush=True)


def fields(schedule):
    """`row(a=1,b=2)` -> ["row", "a=1", "b=2"]"""
    family, rest = schedule[:-1].split("(", 1)
    return [family, *rest.split(",")]


class Region:
    def __init__(self):
        self.best = None
        self.best_ns = None
        self.share = 1.0
        self.candidates = []
        self.tried = set()
        self.ratios = defaultdict(list)

    def update(self, message):
        self.best, self.best_ns = message["best"], message["best_ns"]
        self.share = (message["best_ns"] or 1.0) * message["launches"]
        for schedule in message["near"]:
            if schedule not in self.candidates:
                self.candidates.append(schedule)

    def learn(self, message):
        self.tried.add(message["schedule"])
        if message["verdict"] != "accepted" or not message["median_ns"]:
            ratio = 4.0
        else:
            ratio = message["median_ns"] / (self.best_ns or message["median_ns"])
        for field in fields(message["schedule"]):
            self.ratios[field].append(ratio)

    def expected(self, schedule):
        """Mean over the schedule's numbers of how they did; 1 for those that nobody tried."""
        seen = [self.ratios.get(field, [1.0]) for field in fields(schedule)]
        return sum(sum(ratios) / len(ratios) for ratios in seen) / len(seen)


def main():
    regions = defaultdict(Region)
    for line in sys.stdin:
        message = json.loads(line)
        kind = message["type"]
        if kind == "hello":
            say(type="hello", protocol=1, name="evidence")
        elif kind == "region":
            regions[message["region"]].update(message)
        elif kind == "evidence":
            regions[message["region"]].learn(message)
        elif kind == "ask":
            if message["want"] == "schedules":
                wanted = []
                for name, region in regions.items():
                    for schedule in region.candidates:
                        if schedule not in region.tried:
                            # What is expected to be saved of the whole.
                            gain = region.share * (2.0 - region.expected(schedule))
                            wanted.append((gain, name, schedule))
                wanted.sort(key=lambda it: (-it[0], it[1], it[2]))
                for gain, name, schedule in wanted[: min(message["n"], message["budget"])]:
                    regions[name].tried.add(schedule)
                    say(type="schedule", region=name, schedule=schedule, priority=gain)
            say(type="done")


if __name__ == "__main__":
    main()
