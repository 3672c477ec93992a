"""Books, members, and loans."""

from __future__ import annotations

from random import Random

from gem_envs._databases.task import DatabaseTask, table, task
from gem_envs._drawn import PEOPLE, PLACES, THINGS

_GENRES = ("poetry", "travel", "history", "crime", "science")


def library(random: Random) -> str:
    """Return SQL of a consistent library: no book is lent to two members at once."""
    books = [
        (
            n,
            f"The {thing.title()} of {random.choice(PLACES).title()}",
            random.choice(_GENRES),
            random.randint(1950, 2020),
        )
        for n, thing in enumerate(random.sample(THINGS, 14), 1)
    ]
    members = [(n, person.title(), 1) for n, person in enumerate(random.sample(PEOPLE, 9), 1)]
    loans = []
    for n in range(1, 31):
        month, day = random.randint(1, 11), random.randint(1, 28)
        back = f"2024-{month + 1:02}-{random.randint(1, 28):02}" if n > 6 else None
        book = n if back is None else random.randint(1, 14)
        loans.append((n, book, random.randint(1, 7), f"2024-{month:02}-{day:02}", back))
    return "".join(
        [
            table("books", "id INTEGER PRIMARY KEY, title TEXT, genre TEXT, year INTEGER", books),
            table("members", "id INTEGER PRIMARY KEY, name TEXT, active INTEGER", members),
            table(
                "loans",
                "id INTEGER PRIMARY KEY, book_id INTEGER, member_id INTEGER, taken TEXT, returned TEXT",
                loans,
            ),
        ]
    )


@task
def fines(random: Random) -> DatabaseTask:
    """Charge fines for late returns."""
    days, rate = random.choice([14, 21, 28]), random.randint(5, 40)
    late = "CAST(julianday(returned) - julianday(taken) AS INTEGER)"
    insert = f"INSERT INTO fines SELECT id, ({late} - {{}}) * {rate} FROM loans WHERE {late} > {{}};"
    return DatabaseTask(
        f"A book may be kept for {days} days. For each loan that was returned later than that, enter a "
        f"row into fines: the id of the loan, and {rate} cents for each day beyond the {days} days. Loans "
        "that are not returned yet have no fine so far.",
        library(random)
        + f"INSERT INTO loans VALUES (61, 3, 2, '2024-03-01', date('2024-03-01', '+{days} days')), "
        f"(62, 4, 3, '2024-03-02', date('2024-03-02', '+{days + 1} days'));\n"
        + table("fines", "loan_id INTEGER, cents INTEGER", []),
        insert.format(days, days),
        (insert.format(0, days), insert.format(days, days - 1), insert.format(days + 1, days)),
    )


@task
def one_loan_at_a_time(random: Random) -> DatabaseTask:
    """Enforce a rule with a constraint."""
    book = random.randint(1, 6)
    index = "CREATE UNIQUE INDEX {} ON loans ({}) {};"
    return DatabaseTask(
        "Make the database refuse a loan of a book that is lent at that moment, which means that there "
        "is a loan of the book without a date in returned. Use a unique index on the column book_id "
        "alone, with a fitting condition. A book that has been returned can be lent again.",
        library(random),
        index.format("one_loan", "book_id", "WHERE returned IS NULL"),
        (
            index.format("one_loan", "book_id, returned", ""),
            index.replace("UNIQUE ", "").format("one_loan", "book_id", "WHERE returned IS NULL"),
            index.format("one_loan", "book_id", "WHERE returned IS NULL AND book_id < 0"),
        ),
        probes=(
            f"INSERT INTO loans VALUES (900, {book}, 1, '2024-12-01', NULL);",
            f"UPDATE loans SET returned = '2024-12-01' WHERE book_id = {book}; INSERT INTO loans VALUES "
            f"(903, {book}, 1, '2024-12-02', NULL); SELECT count(*) FROM loans;",
            "INSERT INTO loans VALUES (904, 13, 1, '2024-12-01', NULL), (905, 13, 2, '2024-12-01', NULL);",
            f"INSERT INTO loans VALUES (906, {book}, 1, '2023-12-01', '2023-12-09'), (907, {book}, 1, "
            "'2023-12-01', '2023-12-09'); SELECT count(*) FROM loans;",
            f"INSERT INTO loans VALUES (908, {book}, 1, '2023-12-01', '2023-12-09'); UPDATE loans SET "
            "returned = NULL WHERE id = 908;",
            f"INSERT INTO loans VALUES (901, {book}, 1, '2023-12-01', '2023-12-09'); SELECT count(*) FROM "
            "loans;",
            "INSERT INTO loans VALUES (902, 13, 1, '2024-12-01', NULL); SELECT count(*) FROM loans;",
        ),
    )


@task
def orphans(random: Random) -> DatabaseTask:
    """Delete loans of missing books or members."""
    book, member = random.randint(7, 14), random.randint(1, 7)
    bad = "book_id NOT IN (SELECT id FROM books) {} member_id NOT IN (SELECT id FROM members)"
    move = "INSERT INTO lost_loans SELECT id, {} FROM loans WHERE {}; DELETE FROM loans WHERE {};"
    reason = "CASE WHEN book_id NOT IN (SELECT id FROM books) THEN 'book' ELSE 'member' END"
    setup = (
        library(random) + f"DELETE FROM books WHERE id = {book};\nDELETE FROM members WHERE id = {member};\n"
    )
    setup += (
        f"INSERT INTO loans VALUES (70, {book}, {member}, '2024-02-02', '2024-02-03'), (71, {book}, 9, "
        f"'2024-02-02', '2024-03-01'), (72, 1, {member}, '2024-01-01', '2024-01-02');\n"
    )
    either = bad.format("OR")
    return DatabaseTask(
        "Some loans are of a book or of a member that the database no longer has. Move them out: enter "
        "each into lost_loans, with its id and the reason, which is 'book' if the book is missing (also "
        "if both are) and else 'member', and delete it from loans.",
        setup + table("lost_loans", "loan_id INTEGER, reason TEXT", []),
        move.format(reason, either, either),
        (
            move.format("'book'", either, either),
            move.format(reason, bad.format("AND"), bad.format("AND")),
            f"DELETE FROM loans WHERE {either};",
        ),
    )


@task
def inactive(random: Random) -> DatabaseTask:
    """Mark members without recent loans."""
    day = f"2024-{random.randint(8, 10):02}-01"
    update = "UPDATE members SET active = 0 WHERE id NOT IN (SELECT member_id FROM loans WHERE {});"
    recent = f"taken >= '{day}'"
    still = " OR returned IS NULL"
    return DatabaseTask(
        f"Set active to 0 for every member who has taken no book on {day} or later and has no book at "
        "home now. A book is at home as long as its loan has no date in returned. Other members stay as "
        "they are.",
        library(random)
        + f"UPDATE loans SET taken = '{day}' WHERE id = 9;\nINSERT INTO members VALUES (30, 'Zora', 1), "
        f"(32, 'Xenia', 1), (33, 'Wim', 1);\nINSERT INTO loans VALUES (62, 3, 32, '{day}', '2024-12-02'), "
        f"(63, 4, 33, date('{day}', '-1 day'), '2024-12-03');\n"
        "INSERT INTO loans VALUES (60, 12, 30, '2024-01-09', NULL), (61, 3, 31, '2024-12-01', "
        "'2024-12-02');\nINSERT INTO members VALUES (31, 'Ylva', 1);\n",
        update.format(recent + still),
        (
            update.format(recent),
            update.format("returned IS NULL"),
            f"DELETE FROM members WHERE id NOT IN (SELECT member_id FROM loans WHERE {recent}{still});",
        ),
    )


@task
def genres(random: Random) -> DatabaseTask:
    """Move a column into a separate table."""
    make = (
        "CREATE TABLE genres (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO genres SELECT row_number() "
        "OVER (ORDER BY genre{}), genre FROM (SELECT DISTINCT genre FROM books);"
    )
    link = (
        "ALTER TABLE books ADD COLUMN genre_id INTEGER; UPDATE books SET genre_id = (SELECT id FROM "
        "genres WHERE name = genre);"
    )
    drop = "ALTER TABLE books DROP COLUMN genre;"
    return DatabaseTask(
        "Give the genres a table of their own: genres with the columns id and name, one row for each "
        "genre that occurs, numbered from 1 in the order of the alphabet. Add to books a column genre_id "
        "with the number of the genre of the book, as its last column, and remove the column genre.",
        library(random),
        make.format("") + link + drop,
        (make.format("") + link, make.format(" DESC") + link + drop),
    )


@task
def eager_reader(random: Random) -> DatabaseTask:
    """Answer a question about the data."""
    eager, other = random.sample(("Emre", "Ingrid", "Lotte", "Marek", "Noor", "Paolo", "Pilar", "Sanna"), 2)
    rows = [(100 + n, n % 14 + 1, 8, f"2023-01-{n + 1:02}", f"2023-01-{n + 2:02}") for n in range(20)]
    setup = library(random) + "".join(
        f"INSERT INTO loans VALUES ({', '.join(map(repr, row))});\n" for row in rows
    )
    setup += "INSERT INTO loans SELECT 200 + id, 2, 9, taken, taken FROM loans WHERE id >= 7;\n"
    setup += (
        f"UPDATE members SET name = '{eager}' WHERE id = 8;\n"
        f"UPDATE members SET name = '{other}' WHERE id = 9;\n"
    )
    return DatabaseTask(
        "Which member has borrowed the greatest number of different books, each book counted once "
        "however often it was borrowed? Give the name of the member, and leave the database as it is.",
        setup,
        "SELECT m.name FROM loans l JOIN members m ON m.id = l.member_id GROUP BY m.id ORDER BY "
        "count(DISTINCT l.book_id) DESC LIMIT 1",
        ("UPDATE members SET active = 0 WHERE id = 8;",),
        answer=eager,
        wrong_answers=(other, "8"),
    )
