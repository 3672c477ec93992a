"""Trucks, drivers, and trips."""

from __future__ import annotations

from random import Random

from gem_envs._databases.task import DatabaseTask, table, task
from gem_envs._drawn import PEOPLE, PLACES


def fleet(random: Random) -> str:
    """Return SQL of a fleet. The trips of a truck do not overlap."""
    depots = [place.title() for place in random.sample(PLACES, 3)]
    trucks = [(n, f"T-{random.randint(10, 99)}{n}", depots[n % 3], 1000 * n) for n in range(1, 7)]
    drivers = [(n, person.title(), depots[n % 3]) for n, person in enumerate(random.sample(PEOPLE, 9), 1)]
    trips, number = [], 0
    for truck, _, _, start in trucks:
        km = start
        for _ in range(random.randint(4, 6)):
            number += 1
            begin, km = km, km + random.randint(20, 900)
            day = f"2025-{random.randint(1, 4):02}-{random.randint(1, 28):02}"
            trips.append((number, truck, random.randint(1, 8), day, begin, km, random.randint(8, 200)))
    return "".join(
        [
            table("trucks", "id INTEGER PRIMARY KEY, plate TEXT, depot TEXT, km INTEGER", trucks),
            table("drivers", "id INTEGER PRIMARY KEY, name TEXT, depot TEXT", drivers),
            table(
                "trips",
                "id INTEGER PRIMARY KEY, truck_id INTEGER, driver_id INTEGER, day TEXT, start_km "
                "INTEGER, end_km INTEGER, liters INTEGER",
                trips,
            ),
        ]
    )


@task
def odometers(random: Random) -> DatabaseTask:
    """Correct outdated odometers."""
    update = "UPDATE trucks SET km = (SELECT {}(end_km) FROM trips WHERE truck_id = trucks.id) WHERE {};"
    behind = "km < (SELECT max(end_km) FROM trips WHERE truck_id = trucks.id)"
    high = random.randint(90, 99) * 1000
    return DatabaseTask(
        "The column km of trucks is to be what the counter shows now. Where a trip of the truck ended at "
        "a higher number, set km to the highest one. Where km is higher than all trips say, or the truck "
        "has made no trip, leave it.",
        fleet(random)
        + f"UPDATE trucks SET km = {high} WHERE id = 3;\nINSERT INTO trucks VALUES (20, 'T-00', "
        "'Nowhere', 5);\n",
        update.format("max", behind),
        (update.format("max", "1"), update.format("max", "id < 20"), update.format("min", behind)),
    )


@task
def missing_drivers(random: Random) -> DatabaseTask:
    """Assign drivers to trips without one."""
    gaps = random.sample(range(1, 20), 5)
    update = (
        "UPDATE trips SET driver_id = (SELECT {}(d.id) FROM drivers d JOIN trucks t ON t.depot = d.depot "
        "WHERE t.id = truck_id {}) WHERE driver_id IS NULL;"
    )
    home = "AND NOT EXISTS (SELECT 1 FROM trips o WHERE o.driver_id = d.id AND o.day = trips.day)"
    setup = fleet(random) + f"UPDATE trips SET driver_id = NULL WHERE id IN ({', '.join(map(str, gaps))});\n"
    setup += (
        "UPDATE trips SET day = '2025-02-0' || (id % 9 + 1);\nUPDATE trips SET day = '2025-03-1' || id, "
        "driver_id = (SELECT min(d.id) FROM drivers d JOIN trucks t ON t.depot = d.depot WHERE t.id = "
        f"(SELECT truck_id FROM trips WHERE id = {gaps[0]})) WHERE id = "
        f"{min(set(range(1, 20)) - set(gaps))};\n"
    )
    setup += (
        f"UPDATE trips SET day = (SELECT day FROM trips WHERE id = {min(set(range(1, 20)) - set(gaps))}) "
        f"WHERE id = {gaps[0]};\n"
    )
    setup += "".join(
        f"UPDATE trips SET day = '2025-04-0{n}' WHERE id = {gap};\n" for n, gap in enumerate(gaps[1:], 1)
    )
    return DatabaseTask(
        "Some trips have no driver. Give each the driver with the smallest id among those who are of the "
        "same depot as the truck of the trip and have no other trip on that day. No two of the trips "
        "without a driver are on the same day.",
        setup,
        update.format("min", home),
        (update.format("max", home), update.format("min", ""), "DELETE FROM trips WHERE driver_id IS NULL;"),
    )


def _month(trips: int) -> str:
    """Return SQL that enters a month of this many trips, and shows the view."""
    rows = (
        f"({95 + n}, 2, 1, '2026-02-{n + 1:02}', {2000 * n}, {2000 * n + 1537}, {20_000 + n})"
        for n in range(trips)
    )
    return f"INSERT INTO trips VALUES {', '.join(rows)}; SELECT * FROM monthly_fuel;"


@task
def monthly_fuel(random: Random) -> DatabaseTask:
    """Create a view by month."""
    at_least = random.randint(1, 3)
    view = (
        "CREATE VIEW monthly_fuel AS SELECT substr(day, 1, {}) AS month, count(*) AS trips, sum(end_km - "
        "start_km) AS km, sum(liters) AS liters, round(100.0 * sum(liters) / sum(end_km - start_km), 1) "
        "AS per_100 FROM trips GROUP BY month {};"
    )
    return DatabaseTask(
        f"Make a view monthly_fuel with a row for each month that has at least {at_least} trips, and the "
        "columns month (such as 2025-03), trips (how many), km (driven in all), liters (used in all) and "
        "per_100 (liters for each 100 km over the whole month, rounded to one decimal).",
        fleet(random) + "INSERT INTO trips VALUES (90, 1, 1, '2025-11-03', 0, 100, 7);\n" * (at_least > 1),
        view.format(7, f"HAVING count(*) >= {at_least}"),
        (
            view.format(4, ""),
            view.replace(
                "round(100.0 * sum(liters) / sum(end_km - start_km), 1)",
                "round(avg(100.0 * liters / (end_km - start_km)), 1)",
            ).format(7, f"HAVING count(*) >= {at_least}"),
            view.format(7, "HAVING count(*) > 30"),
        ),
        probes=(
            "INSERT INTO trips VALUES (91, 1, 1, '2025-12-01', 0, 300, 33), (92, 1, 1, '2025-12-02', "
            "300, 400, 7), (93, 1, 1, '2025-12-03', 400, 500, 1); SELECT * FROM monthly_fuel;",
            *(_month(count) for count in range(1, at_least + 2)),
            "DELETE FROM trips; SELECT * FROM monthly_fuel;",
            f"UPDATE trips SET day = '2026' || substr(day, 5) WHERE id < {random.randint(5, 9)}; "
            "SELECT * FROM monthly_fuel;",
        ),
    )


@task
def secret_trips(random: Random) -> DatabaseTask:
    """Answer a question about the data."""
    truck, other = random.sample(range(1, 7), 2)
    gap = random.randint(3000, 5000)
    setup = fleet(random)
    setup += (
        f"UPDATE trips SET start_km = start_km + {gap}, end_km = end_km + {gap} WHERE truck_id = {truck} "
        f"AND id > (SELECT min(id) FROM trips WHERE truck_id = {truck});\n"
    )
    setup += (
        "UPDATE trips SET end_km = end_km + 9000 WHERE id = (SELECT max(id) FROM trips WHERE truck_id = "
        f"{other});\n"
    )
    setup += (
        f"UPDATE trucks SET plate = 'X-{gap}' WHERE id = {truck};\nUPDATE trucks SET plate = 'Y-{gap}' "
        f"WHERE id = {other};\n"
    )
    return DatabaseTask(
        "The trips of a truck should follow each other: one starts at the km at which the one before it, "
        "in the order of the km, ended. One truck was driven without a trip being entered. Which, and "
        "how far? Give its plate, a blank and the km that are missing, and leave the database as it is.",
        setup,
        "SELECT plate, gap FROM (SELECT truck_id, start_km - lag(end_km) OVER (PARTITION BY truck_id "
        "ORDER BY start_km) AS gap FROM trips) JOIN trucks t ON t.id = truck_id ORDER BY gap DESC LIMIT 1",
        (f"UPDATE trips SET start_km = start_km - {gap} WHERE truck_id = {truck};",),
        answer=f"X-{gap} {gap}",
        wrong_answers=(f"Y-{gap} 9000", f"{gap} X-{gap}", f"X-{gap}"),
    )


@task
def close_depot(random: Random) -> DatabaseTask:
    """Move the trucks of a depot to the depots with the fewest."""
    sizes = random.sample([2, 3, 4, 5], 3)
    names = [place.title() for place in random.sample(PLACES, 4)]
    placed = names[:1] + [name for name, size in zip(names[1:], sizes, strict=True) for _ in range(size)]
    random.shuffle(placed)
    trucks = [
        (n, f"T-{n}{random.randint(10, 99)}", depot, random.randint(1, 9) * 1000)
        for n, depot in enumerate(placed, 1)
    ]
    drivers = [(n, p.title(), random.choice(names)) for n, p in enumerate(random.sample(PEOPLE, 9), 1)]
    drivers += [(10, "Ada", names[0]), (11, "Ben", names[0])]
    fewest = (
        f"(SELECT depot FROM trucks WHERE depot <> '{names[0]}' GROUP BY depot ORDER BY count(*) {{}} "
        "LIMIT 1)"
    )
    drive = f"UPDATE drivers SET depot = {fewest} WHERE depot = '{names[0]}';"
    move = f"UPDATE trucks SET depot = {fewest} WHERE depot = '{names[0]}';"
    drop = f"DELETE FROM depots WHERE name = '{names[0]}';"
    return DatabaseTask(
        f"The depot {names[0]} is closed. All its trucks and drivers go to the depot that has the fewest "
        f"trucks among the others. Then delete {names[0]} from the table depots.",
        table(
            "depots", "name TEXT PRIMARY KEY, size INTEGER", [(name, random.randint(5, 9)) for name in names]
        )
        + table("trucks", "id INTEGER PRIMARY KEY, plate TEXT, depot TEXT, km INTEGER", trucks)
        + table("drivers", "id INTEGER PRIMARY KEY, name TEXT, depot TEXT", drivers),
        (drive + move + drop).replace("{}", "ASC"),
        ((drive + move + drop).replace("{}", "DESC"), (move + drop).replace("{}", "ASC"), drop),
    )
