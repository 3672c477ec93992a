"""Patients, doctors, and visits."""

from __future__ import annotations

from random import Random

from gem_envs._databases.task import DatabaseTask, table, task
from gem_envs._drawn import PEOPLE


def clinic(random: Random) -> str:
    """Return SQL of a clinic. Visits may overlap, except with the same doctor."""
    people = random.sample(PEOPLE, 17)
    patients = [
        (n, p.title(), f"555-{random.randint(1000, 9999)}", random.randint(1940, 2015))
        for n, p in enumerate(people[:12], 1)
    ]
    doctors = [
        (n, f"Dr. {p.title()}", random.choice(["eyes", "bones", "heart"]))
        for n, p in enumerate(people[12:], 1)
    ]
    slots = [(doctor, day, hour) for doctor in range(1, 6) for day in range(1, 7) for hour in range(8, 14)]
    visits = [
        (
            n,
            random.randint(1, 10),
            doctor,
            f"2025-03-{day:02}",
            hour,
            random.choice(["planned", "planned", "done"]),
        )
        for n, (doctor, day, hour) in enumerate(random.sample(slots, 60), 1)
    ]
    return "".join(
        [
            table("patients", "id INTEGER PRIMARY KEY, name TEXT, phone TEXT, born INTEGER", patients),
            table("doctors", "id INTEGER PRIMARY KEY, name TEXT, field TEXT", doctors),
            table(
                "visits",
                "id INTEGER PRIMARY KEY, patient_id INTEGER, doctor_id INTEGER, day TEXT, hour INTEGER, "
                "state TEXT",
                visits,
            ),
        ]
    )


@task
def stand_in(random: Random) -> DatabaseTask:
    """Reassign the visits of a doctor who is ill."""
    ill, other = random.sample(range(1, 6), 2)
    day = f"2025-03-{random.randint(1, 6):02}"
    setup = clinic(random) + f"DELETE FROM visits WHERE day = '{day}';\n"
    setup += (
        f"INSERT INTO visits VALUES (80, 1, {ill}, '{day}', 9, 'planned'), (81, 2, {other}, '{day}', 9, "
        f"'planned'), (82, 3, {ill}, '{day}', 10, 'planned'), (83, 4, {ill}, '{day}', 8, 'done'), (84, 5, "
        f"{other}, '{day}', 11, 'planned');\n"
    )
    setup += "".join(
        f"INSERT INTO visits VALUES ({90 + doctor}, 6, {doctor}, '{day}', 10, 'planned');\n"
        for doctor in range(1, 6)
        if doctor not in (ill, other)
    )
    mine = f"doctor_id = {ill} AND day = '{day}' AND state = 'planned'"
    busy = f"hour IN (SELECT hour FROM visits WHERE doctor_id = {other} AND day = '{day}')"
    free = f"UPDATE visits SET doctor_id = NULL, state = 'open' WHERE {mine} AND {busy};"
    move = f"UPDATE visits SET doctor_id = {other} WHERE {mine};"
    return DatabaseTask(
        f"The doctor with id {ill} is ill on {day}, and the doctor with id {other} stands in. Each "
        "planned visit of that day with the ill doctor goes to the other one at the same hour, unless "
        "the other one has a visit at that hour already: then the visit loses its doctor, and its state "
        "becomes open. Visits that are done stay as they are.",
        setup,
        free + move,
        (move, free, (free + move).replace(" AND state = 'planned'", "")),
    )


@task
def phone_log(random: Random) -> DatabaseTask:
    """Log changes with a trigger."""
    patient = random.randint(1, 12)
    trigger = (
        "CREATE TRIGGER log_phone AFTER UPDATE OF phone ON patients {} BEGIN INSERT INTO phone_log "
        "VALUES ({}); END;"
    )
    changed = "WHEN old.phone IS NOT new.phone"
    return DatabaseTask(
        "From now on, whenever the phone number of a patient changes, the database itself is to enter a "
        "row into phone_log: the id of the patient, the old and the new number. An update that leaves "
        "the number as it was, which may be NULL, enters nothing; one that sets it to NULL or from NULL to a "
        "number does.",
        clinic(random) + table("phone_log", "patient_id INTEGER, old TEXT, new TEXT", []),
        trigger.format(changed, "old.id, old.phone, new.phone"),
        (
            trigger.format("", "old.id, old.phone, new.phone"),
            trigger.format(changed, "old.id, new.phone, old.phone"),
            trigger.format("WHEN old.phone <> new.phone", "old.id, old.phone, new.phone"),
            trigger.format(
                "WHEN old.phone <> new.phone OR new.phone IS NULL", "old.id, old.phone, new.phone"
            ),
            trigger.format(
                "WHEN old.phone <> new.phone OR old.phone IS NULL", "old.id, old.phone, new.phone"
            ),
            trigger.format(
                "WHEN coalesce(old.phone, '') <> coalesce(new.phone, '')", "old.id, old.phone, new.phone"
            ),
            trigger.format("WHEN lower(old.phone) IS NOT lower(new.phone)", "old.id, old.phone, new.phone"),
        ),
        probes=(
            *(
                f"UPDATE patients SET phone = {old} WHERE id = {patient}; DELETE FROM phone_log; "
                f"UPDATE patients SET phone = {new} WHERE id = {patient}; SELECT * FROM phone_log;"
                for old in ("NULL", "'1'", "''", "'x1'")
                for new in ("NULL", "'1'", "''", "'X1'")
            ),
            f"UPDATE patients SET phone = '1' WHERE id = {patient}; SELECT * FROM phone_log;",
            "UPDATE patients SET phone = phone; SELECT * FROM phone_log;",
            "UPDATE patients SET phone = '2'; SELECT * FROM phone_log;",
            "UPDATE patients SET phone = phone || '2' WHERE id > 9; UPDATE patients SET phone = NULL; "
            "SELECT * FROM phone_log;",
            f"UPDATE patients SET name = 'x', born = 1 WHERE id = {patient}; SELECT * FROM phone_log;",
            f"UPDATE patients SET name = 'x', phone = '3' WHERE id = {patient}; SELECT * FROM phone_log;",
            "INSERT INTO patients VALUES (50, 'x', '4', 1999); SELECT * FROM phone_log;",
            f"DELETE FROM patients WHERE id = {patient}; SELECT * FROM phone_log;",
        ),
    )


@task
def forget(random: Random) -> DatabaseTask:
    """Erase the data of some patients."""
    year = random.randint(1965, 1985)
    update = "UPDATE patients SET name = 'patient ' || id, phone = NULL WHERE {};"
    none = "id NOT IN (SELECT patient_id FROM visits{})"
    return DatabaseTask(
        f"Patients who were born before {year} and have no visit that is planned are to be forgotten: "
        "their name becomes the word patient, a blank and their id (such as 'patient 7'), and their "
        "phone number becomes NULL. The rows stay.",
        clinic(random) + f"UPDATE patients SET born = {year - 9} WHERE id IN (1, 2);\nUPDATE patients SET "
        f"born = {year - 1} WHERE id = 11;\nUPDATE patients SET born = {year} WHERE id = 12;\n"
        "UPDATE visits SET state = 'done' WHERE patient_id = 1;\n",
        update.format(f"born < {year} AND " + none.format(" WHERE state = 'planned'")),
        (
            update.format(f"born < {year} AND " + none.format("")),
            update.format(f"born <= {year} AND " + none.format(" WHERE state = 'planned'")),
            f"DELETE FROM patients WHERE born < {year} AND " + none.format(" WHERE state = 'planned'"),
        ),
    )


@task
def clashes(random: Random) -> DatabaseTask:
    """Answer a question about the data."""
    setup = clinic(random) + "".join(
        f"INSERT INTO visits SELECT {200 + 10 * n} + id, patient_id, doctor_id, day, hour, 'planned' FROM "
        f"visits WHERE id = {n};\n"
        for n in random.sample(range(1, 50), random.randint(3, 14))
    )
    query = "SELECT count(*) FROM (SELECT 1 FROM visits GROUP BY doctor_id, day, hour HAVING count(*) > 1)"
    count = setup.count("INSERT INTO visits SELECT")
    return DatabaseTask(
        "By mistake some doctors have more than one visit on the same day at the same hour. At how many "
        "times does this happen, a time being a doctor, a day and an hour? Give the number, and leave "
        "the database as it is.",
        setup,
        query,
        ("DELETE FROM visits WHERE id > 200;",),
        answer=str(count),
        wrong_answers=(str(2 * count), "0"),
    )


@task
def free_hours(random: Random) -> DatabaseTask:
    """Create a table of the free hours."""
    doctor, first = random.randint(1, 5), random.randint(8, 10)
    insert = (
        f"WITH RECURSIVE h(hour) AS (SELECT {first} UNION ALL SELECT hour + 1 FROM h WHERE hour < {{}}) "
        "INSERT INTO free_hours SELECT d.day, h.hour FROM (SELECT DISTINCT day FROM visits) d, h WHERE "
        f"NOT EXISTS (SELECT 1 FROM visits v WHERE v.doctor_id = {doctor} AND v.day = d.day AND v.hour = "
        "h.hour {});"
    )
    return DatabaseTask(
        f"Fill the table free_hours with the hours at which the doctor with id {doctor} has no visit in "
        f"any state: for each day on which the clinic has a visit at all, each hour from {first} to 13, "
        "both included.",
        clinic(random)
        + f"INSERT INTO visits VALUES (300, 1, {doctor}, '2025-03-01', 13, 'done');\n"
        + table("free_hours", "day TEXT, hour INTEGER", []),
        insert.format(13, ""),
        (
            insert.format(12, ""),
            insert.format(13, "AND v.state = 'planned'"),
        ),
    )
