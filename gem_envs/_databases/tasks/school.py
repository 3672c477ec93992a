"""Students, courses, and grades."""

from __future__ import annotations

from random import Random

from gem_envs._databases.task import DatabaseTask, table, task
from gem_envs._drawn import PEOPLE

_COURSES = ("algebra", "biology", "chess", "drawing", "economics", "french")


def school(random: Random) -> str:
    """Return SQL of a school. A student may have several grades in a course."""
    students = [
        (n, person.title(), random.randint(5, 9)) for n, person in enumerate(random.sample(PEOPLE, 14), 1)
    ]
    courses = [(n, name, random.randint(3, 6)) for n, name in enumerate(_COURSES, 1)]
    enrolled = [
        (s, c) for c in range(1, 7) for s in sorted(random.sample(range(1, 13), random.randint(5, 8)))
    ]
    grades = [(s, c, random.randint(20, 100)) for s, c in enrolled for _ in range(random.randint(0, 3))]
    return "".join(
        [
            table("students", "id INTEGER PRIMARY KEY, name TEXT, year INTEGER", students),
            table("courses", "id INTEGER PRIMARY KEY, name TEXT, places INTEGER", courses),
            table("enrollments", "student_id INTEGER, course_id INTEGER", enrolled),
            table("grades", "student_id INTEGER, course_id INTEGER, points INTEGER", grades),
        ]
    )


def _regraded(row: int, points: list[int]) -> str:
    """Return SQL that replaces the grades of an enrollment."""
    enrollment = f"FROM enrollments WHERE rowid = {row}"
    return (
        f"DELETE FROM grades WHERE (student_id, course_id) IN (SELECT student_id, course_id {enrollment});\n"
        + (
            "".join(
                f"INSERT INTO grades SELECT student_id, course_id, {value} {enrollment};\n"
                for value in points
            )
        )
    )


@task
def reports(random: Random) -> DatabaseTask:
    """Summarize the grades of each student by course."""
    limit = random.randint(45, 65)
    insert = (
        "INSERT INTO reports SELECT e.student_id, e.course_id, round(avg(g.points), 1), {} FROM "
        "enrollments e {} JOIN grades g ON g.student_id = e.student_id AND g.course_id = e.course_id "
        "GROUP BY e.student_id, e.course_id;"
    )
    passed = (
        f"CASE WHEN avg(g.points) >= {limit} THEN 'yes' WHEN avg(g.points) IS NULL THEN 'open' ELSE 'no' END"
    )
    return DatabaseTask(
        "Fill the table reports with one row for each enrollment: the student, the course, the mean of "
        "the points of the student in the course rounded to one decimal (NULL where there are none), and "
        f"in passed 'yes' if the mean before rounding is {limit} or more, 'no' if it is less, and 'open' "
        "where there are no points.",
        school(random)
        + "".join(
            _regraded(row, points)
            for row, points in enumerate(
                ([limit], [limit] * 24 + [limit - 1], [limit - 1], [], [limit - 9, limit + 9, limit - 1]), 1
            )
        )
        + table("reports", "student_id INTEGER, course_id INTEGER, mean REAL, passed TEXT", []),
        insert.format(passed, "LEFT"),
        (
            insert.format(passed, ""),
            insert.format(passed.replace("WHEN avg(g.points) IS NULL THEN 'open' ", ""), "LEFT"),
            insert.format(passed.replace("avg(g.points) >=", "max(g.points) >="), "LEFT"),
        ),
    )


@task
def waiting_list(random: Random) -> DatabaseTask:
    """Fill free places from the waiting list."""
    course = random.randint(1, 6)
    waiting = [(n, s, course, 100 - n) for n, s in enumerate(random.sample(range(1, 15), 5), 1)]
    waiting += [(9, 13, course % 6 + 1, 1)]
    setup = (
        school(random) + f"DELETE FROM enrollments WHERE course_id = {course} AND student_id IN (SELECT "
        f"student_id FROM enrollments WHERE course_id = {course} LIMIT 20);\n"
    )
    setup += (
        f"INSERT INTO enrollments VALUES (20, {course}), (21, {course});\nUPDATE courses SET places = 4 "
        f"WHERE id = {course};\nINSERT INTO students VALUES (20, 'Zeno', 6), (21, 'Yara', 7);\n"
    )
    first = f"SELECT id FROM waiting WHERE course_id = {course} ORDER BY {{}} LIMIT {{}}"
    enter = (
        "INSERT INTO enrollments SELECT student_id, course_id FROM waiting WHERE id IN ({0}); DELETE FROM "
        "waiting WHERE id IN ({0});"
    )
    return DatabaseTask(
        f"The course with id {course} has as many places as its column places says, and some are free: "
        "fewer students are enrolled. Give the free places to students from its waiting list, those with "
        "the smallest number in since first: enroll them and delete them from waiting. Do nothing for the "
        "other courses.",
        setup
        + table(
            "waiting", "id INTEGER PRIMARY KEY, student_id INTEGER, course_id INTEGER, since INTEGER", waiting
        ),
        enter.format(first.format("since", 2)),
        (
            enter.format(first.format("id", 2)),
            enter.format(first.format("since", 3)),
            enter.format(first.format("since", 2)).partition(";")[0] + ";",
        ),
    )


@task
def prerequisites(random: Random) -> DatabaseTask:
    """Remove students who lack a prerequisite."""
    needed, limit = random.sample(range(1, 7), 2), random.randint(50, 70)
    rules = [(needed[0], needed[1])]
    has = (
        "EXISTS (SELECT 1 FROM grades g JOIN prerequisites p ON p.needs_id = g.course_id WHERE "
        "p.course_id = enrollments.course_id AND g.student_id = enrollments.student_id {})"
    )
    delete = (
        f"DELETE FROM enrollments WHERE course_id {{}} (SELECT course_id FROM prerequisites) AND NOT {has};"
    )
    return DatabaseTask(
        "The table prerequisites says which course needs which other one. Delete the enrollments of "
        f"students in a course that needs another one in which they have no single grade of {limit} "
        "points or more. Delete no grades, and no enrollments in courses that need nothing.",
        school(random)
        + table("prerequisites", "course_id INTEGER, needs_id INTEGER", rules)
        + f"INSERT INTO enrollments SELECT id, {needed[0]} FROM students WHERE id NOT IN (SELECT "
        f"student_id FROM enrollments WHERE course_id = {needed[0]});\nDELETE FROM grades WHERE student_id "
        f"IN (1, 2) AND course_id = {needed[1]};\nINSERT INTO grades VALUES (1, {needed[1]}, {limit}), "
        f"(2, {needed[1]}, {limit - 1});\n",
        delete.format("IN", f"AND g.points >= {limit}"),
        (
            delete.format("IN", f"AND g.points > {limit}"),
            delete.format("IN", ""),
            delete.format("NOT IN", f"AND g.points >= {limit}"),
        ),
    )


@task
def rooms(random: Random) -> DatabaseTask:
    """Create a table with constraints."""
    low, high = random.randint(5, 12), random.randint(60, 120)
    create = (
        "CREATE TABLE rooms (id INTEGER PRIMARY KEY, name TEXT NOT NULL {}, seats INTEGER NOT NULL {}, "
        "course_id INTEGER {});"
    )
    unique, check, key = "UNIQUE", f"CHECK (seats BETWEEN {low} AND {high})", "REFERENCES courses(id)"
    room = "INSERT INTO rooms VALUES ({}); SELECT count(*) FROM rooms;"
    return DatabaseTask(
        "Make an empty table rooms with the columns id (whole number, primary key), name (text), seats "
        "(whole number) and course_id (whole number). The database is to refuse a room without a name or "
        f"without seats, a second room of the same name, fewer than {low} or more than {high} seats, and "
        "a course_id that is the id of no course; a room without a course is fine.",
        school(random),
        create.format(unique, check, key),
        (
            create.format("", check, key),
            create.format(unique, "", key),
            create.format(unique, check, ""),
            create.format(unique, check, key + " NOT NULL"),
            create.format(unique, check.replace(f"AND {high}", f"AND {high + 1}"), key),
        ),
        probes=tuple(
            room.format(values)
            for values in (
                f"1, 'a', {low}, 2",
                f"1, 'a', {high}, NULL",
                f"1, 'a', {low - 1}, 2",
                f"1, 'a', {high + 1}, 2",
                f"1, NULL, {low}, 2",
                "1, 'a', NULL, 2",
                f"1, 'a', {low}, 99",
                f"1, 'a', {low}, 2), (2, 'a', {low}, 3",
                f"1, 'a', {low}, 2), (2, 'b', {low}, 2",
                f"1, 'a', {low}, 2), (2, 'A', {low}, 2",
                f"1, 'a', {low}, NULL), (2, 'b', {low}, NULL), (3, 'c', {high}, 1",
                f"1, 'a', {low}, 2), (1, 'b', {low}, 2",
                f"1, NULL, {low}, NULL",
                "1, 'a', NULL, NULL",
            )
        )
        + tuple(
            f"INSERT INTO rooms VALUES (1, 'a', {low}, 2), (2, 'b', {high}, NULL); UPDATE rooms SET "
            f"{change}; SELECT * FROM rooms;"
            for change in (
                "name = 'a'",
                "name = 'a' WHERE id = 2",
                "name = NULL WHERE id = 2",
                "name = 'c' WHERE id = 2",
                "seats = NULL WHERE id = 1",
                f"seats = {low - 1} WHERE id = 1",
                f"seats = {high + 1} WHERE id = 1",
                f"seats = {high} WHERE id = 1",
                "course_id = 99 WHERE id = 1",
                "course_id = NULL WHERE id = 1",
                "course_id = 3",
            )
        ),
    )


@task
def next_year(random: Random) -> DatabaseTask:
    """Advance every student by a year."""
    last = random.choice([9, 10])
    leave = (
        f"INSERT INTO former SELECT id, name FROM students WHERE year = {last}; DELETE FROM enrollments "
        f"WHERE student_id IN (SELECT id FROM students WHERE year = {last}); DELETE FROM students WHERE "
        f"year = {last};"
    )
    up = "UPDATE students SET year = year + 1;"
    return DatabaseTask(
        f"A year has passed. Students of year {last} leave: enter their id and name into former, delete "
        "their enrollments, and delete them from students; their grades stay. All others move up by one "
        "year.",
        school(random)
        + f"UPDATE students SET year = {last} WHERE id IN (2, 5, 7);\nUPDATE students SET year = "
        f"{last - 1} WHERE id IN (3, 6);\nUPDATE students SET year = 6 WHERE year > {last};\n"
        + table("former", "id INTEGER, name TEXT", []),
        leave + up,
        (
            up + leave,
            leave,
            leave.replace("INSERT INTO former SELECT id, name", "INSERT INTO former SELECT id, upper(name)")
            + up,
        ),
    )


@task
def hardest_course(random: Random) -> DatabaseTask:
    """Answer a question about the data."""
    chosen, crowded = random.sample(range(1, 7), 2)
    setup = (
        school(random) + f"DELETE FROM grades WHERE course_id IN ({chosen}, {crowded});\nINSERT INTO grades "
        f"SELECT student_id, {chosen}, 1 FROM enrollments WHERE course_id = {chosen};\n"
    )
    setup += (
        f"INSERT INTO grades SELECT student_id, {chosen}, 95 FROM enrollments WHERE course_id = {chosen} "
        f"AND student_id = (SELECT min(student_id) FROM enrollments WHERE course_id = {chosen});\n"
    )
    setup += (
        f"INSERT INTO grades SELECT id, {crowded}, 19 FROM students;\nINSERT INTO grades SELECT id, "
        f"{crowded}, 20 FROM students;\n"
    )
    return DatabaseTask(
        "For each course, take the best grade of each student who has a grade in it. In which course is "
        "the mean of these the lowest? Give its name, and leave the database as it is.",
        setup.replace(f"SELECT student_id, {chosen}, 95", f"SELECT student_id, {chosen}, 5"),
        "SELECT c.name FROM (SELECT student_id, course_id, max(points) AS best FROM grades GROUP BY 1, "
        "2) b JOIN courses c ON c.id = course_id GROUP BY c.id ORDER BY avg(best) LIMIT 1",
        ("DELETE FROM grades WHERE points < 5;",),
        answer=_COURSES[chosen - 1],
        wrong_answers=(_COURSES[crowded - 1], str(chosen)),
    )
