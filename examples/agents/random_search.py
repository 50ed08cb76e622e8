"""An external agent for `eggine compile --agent`: random search.

From a region's best schedule it walks a few random steps, doubling or halving one number at a time.
The protocol is described in docs/external-agents.md. Only the standard library is used.
"""

import json
import random
import sys


def say(**message):
    print(json.dumps(message), flush=True)


def parse(text):
    """`row(a=1,b=2)` -> ("row", {"a": 1, "b": 2})"""
    family, fields = text[:-1].split("(", 1)
    pairs = (field.split("=") for field in fields.split(","))
    return family, {key: int(value) for key, value in pairs}


def unparse(family, fields):
    return f"{family}({','.join(f'{key}={value}' for key, value in fields.items())})"


def step(chance, schedule):
    """One number, doubled or halved; flags (0 or 1) are flipped."""
    family, fields = parse(schedule)
    key = chance.choice(list(fields))
    value = fields[key]
    if value <= 1 and chance.random() < 0.5:
        fields[key] = 1 - value
    else:
        fields[key] = max(1, value * 2 if chance.random() < 0.5 else value // 2)
    return unparse(family, fields)


def main():
    regions = {}
    seen = set()
    chance = random.Random(0)
    for line in sys.stdin:
        message = json.loads(line)
        kind = message["type"]
        if kind == "hello":
            chance = random.Random(message["seed"])
            say(type="hello", protocol=1, name="random-search")
        elif kind == "region":
            regions[message["region"]] = message
        elif kind == "ask":
            if message["want"] == "schedules" and regions:
                # Regions are drawn by their share of the whole time.
                names = sorted(regions)
                shares = [(regions[name]["best_ns"] or 1) * regions[name]["launches"] for name in names]
                for _ in range(min(message["n"], message["budget"])):
                    name = chance.choices(names, shares)[0]
                    near = regions[name]["near"]
                    # Half of the walks start at a move that is known to be legal.
                    start = chance.choice(near) if near and chance.random() < 0.5 else regions[name]["best"]
                    schedule = start
                    for _ in range(chance.randrange(3)):
                        schedule = step(chance, schedule)
                    if (name, schedule) not in seen:
                        seen.add((name, schedule))
                        say(type="schedule", region=name, schedule=schedule)
            say(type="done")


if __name__ == "__main__":
    main()
