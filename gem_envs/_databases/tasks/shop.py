"""Customers, products, and orders."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from random import Random

from gem_envs._databases.task import DatabaseTask, table, task
from gem_envs._drawn import PEOPLE, PLACES, THINGS


def shop(random: Random) -> str:
    """Return SQL of a consistent shop."""
    people, things = random.sample(PEOPLE, 10), random.sample(THINGS, 9)
    customers = [
        (n, p.title(), f"{p}@{random.choice(PLACES)}.example", random.choice(PLACES).title())
        for n, p in enumerate(people, 1)
    ]
    products = [
        (n, thing, random.randint(2, 90) * 100 + 99, random.randint(0, 30), random.randint(3, 12))
        for n, thing in enumerate(things, 1)
    ]
    orders = [
        (
            n,
            random.randint(1, 9),
            f"2024-{random.randint(1, 12):02}-{random.randint(1, 28):02}",
            random.choice(["paid", "paid", "unpaid"]),
        )
        for n in range(1, 25)
    ]
    items = [
        (order, product, random.randint(1, 5))
        for order, *_ in orders
        for product in random.sample(range(1, 8), random.randint(1, 3))
    ]
    return "".join(
        [
            table("customers", "id INTEGER PRIMARY KEY, name TEXT, email TEXT, city TEXT", customers),
            table(
                "products",
                "id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER, minimum INTEGER",
                products,
            ),
            table("orders", "id INTEGER PRIMARY KEY, customer_id INTEGER, day TEXT, state TEXT", orders),
            table("items", "order_id INTEGER, product_id INTEGER, pieces INTEGER", items),
        ]
    )


@task
def merge_customers(random: Random) -> DatabaseTask:
    """Merge duplicate customers."""
    twins = random.sample(range(1, 10), 3)
    more = "".join(
        f"INSERT INTO customers SELECT {20 + n}, name, upper(email), city FROM customers WHERE id = "
        f"{twin};\nUPDATE orders SET customer_id = {20 + n} WHERE id IN ({n + 1}, {n + 9});\n"
        for n, twin in enumerate(twins)
    )
    first = (
        "(SELECT min(o.id) FROM customers o WHERE lower(o.email) = lower((SELECT c.email FROM customers "
        "c WHERE c.id = customer_id)))"
    )
    delete = "DELETE FROM customers WHERE id NOT IN (SELECT min(id) FROM customers GROUP BY lower(email));"
    return DatabaseTask(
        "Some customers were entered more than once: their e-mail addresses are the same but for capital "
        "letters. Of each such set keep the customer with the smallest id, give it the orders of the "
        "others, and delete the others. Change nothing else.",
        shop(random) + more,
        f"UPDATE orders SET customer_id = {first}; {delete}",
        (delete, f"UPDATE orders SET customer_id = {first};", delete.replace("lower(email)", "email")),
    )


@task
def restock(random: Random) -> DatabaseTask:
    """Reorder products that run out."""
    factor = random.randint(2, 4)
    buy = "INSERT INTO purchases SELECT id, {} FROM products WHERE stock < minimum;"
    raise_ = "UPDATE products SET stock = {} * minimum WHERE stock {} minimum;"
    return DatabaseTask(
        "Each product of which there is less in stock than its minimum is to be bought, so that its "
        f"stock becomes {factor} times its minimum. Enter each purchase into the table purchases, with "
        "the product and the number of pieces that are bought, and set the new stock.",
        shop(random) + "UPDATE products SET stock = minimum WHERE id = 2; UPDATE products SET stock = 1 "
        "WHERE id = 5;\n" + table("purchases", "product_id INTEGER, pieces INTEGER", []),
        buy.format(f"{factor} * minimum - stock") + raise_.format(factor, "<"),
        (
            raise_.format(factor, "<") + buy.format(f"{factor} * minimum - stock"),
            buy.format(f"{factor} * minimum") + raise_.format(factor, "<"),
            buy.replace("<", "<=").format(f"{factor} * minimum - stock") + raise_.format(factor, "<="),
        ),
    )


@task
def cancel_unpaid(random: Random) -> DatabaseTask:
    """Cancel old unpaid orders."""
    day = f"2024-{random.randint(7, 10):02}-15"
    which = f"SELECT id FROM orders WHERE state = 'unpaid' AND day < '{day}'"
    back = (
        "UPDATE products SET stock = stock + (SELECT coalesce(sum(pieces), 0) FROM items WHERE "
        f"product_id = products.id AND order_id IN ({which}));"
    )
    cancel = f"UPDATE orders SET state = 'cancelled' WHERE id IN ({which});"
    return DatabaseTask(
        f"Cancel the orders from before {day} that are unpaid: set their state to cancelled, and put the "
        "pieces of all their items back into the stock of the products. The items themselves stay.",
        shop(random) + "UPDATE orders SET state = 'unpaid', day = '2024-01-02' WHERE id IN (3, 4);\n"
        "INSERT INTO items VALUES (3, 9, 2), (4, 9, 1);\nUPDATE orders SET state = 'unpaid', day = "
        f"'{day}' WHERE id = 5;\n",
        back + cancel,
        (cancel, cancel + back, (back + cancel).replace(" < ", " <= ")),
    )


@task
def discount(random: Random) -> DatabaseTask:
    """Discount products that do not sell."""
    percent = random.choice([5, 15, 25])
    unsold = "WHERE id NOT IN (SELECT product_id FROM items)"
    log = f"INSERT INTO price_changes SELECT id, price, price * {100 - percent} / 100 FROM products {unsold};"
    cut = f"UPDATE products SET price = price * {100 - percent} / 100 {unsold};"
    return DatabaseTask(
        f"Products that are in no order become {percent} percent cheaper. Prices are in whole cents; "
        "round down. Write each change into price_changes, with the product, the old price and the new "
        "price.",
        shop(random) + table("price_changes", "product_id INTEGER, old INTEGER, new INTEGER", []),
        log + cut,
        (cut, cut + log, (log + cut).replace(unsold, "WHERE 1"), (log + cut).replace("/ 100", "/ 100.0")),
    )


def _has_tie(setup: str, query: str) -> bool:
    """Return whether it is unclear who the three best customers are; `query` returns all, the best first."""
    with closing(sqlite3.connect(":memory:")) as link:
        link.executescript(setup)
        totals = [total for _, total in link.execute(query)]
    return len(totals) < 3 or totals[2] in totals[3:]


@task
def best_customers(random: Random) -> DatabaseTask:
    """Create a table of the three best customers."""
    query = (
        "SELECT c.name AS name, sum(i.pieces * p.price) AS total FROM customers c JOIN orders o ON "
        "o.customer_id = c.id JOIN items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        "{} GROUP BY c.id ORDER BY total {} LIMIT 3"
    )
    create = "CREATE TABLE best_customers AS "
    setup = shop(random)
    while _has_tie(setup, query.format("WHERE o.state = 'paid'", "DESC").replace("LIMIT 3", "")):
        setup = shop(random)
    return DatabaseTask(
        "Make a table best_customers with the columns name and total and a row for each of the three "
        "customers whose paid orders are worth the most in all, at the prices of the table products. "
        "total is that worth in cents.",
        setup,
        create + query.format("WHERE o.state = 'paid'", "DESC"),
        (create + query.format("", "DESC"), create + query.format("WHERE o.state = 'paid'", "ASC")),
    )


@task
def order_values(random: Random) -> DatabaseTask:
    """Create a view of order values."""
    where = "LEFT JOIN items i ON i.order_id = o.id LEFT JOIN products p ON p.id = i.product_id"
    query = (
        "SELECT o.id AS order_id, o.day AS day, coalesce(sum(i.pieces * p.price), 0) AS value FROM "
        "orders o {} GROUP BY o.id"
    )
    return DatabaseTask(
        "Make a view order_values with the columns order_id, day and value: a row for each order, also "
        "for one without items, where value is the sum of pieces times price over its items, 0 if it has "
        "none.",
        shop(random) + "INSERT INTO orders VALUES (90, 2, '2024-05-05', 'paid');\n",
        "CREATE VIEW order_values AS " + query.format(where),
        (
            "CREATE VIEW order_values AS " + query.format(where.replace("LEFT ", "")),
            "CREATE TABLE order_values AS " + query.format(where),
        ),
        probes=(
            "INSERT INTO items VALUES (90, 1, 3); SELECT * FROM order_values WHERE order_id = 90;",
            "INSERT INTO items VALUES (90, 1, 3), (90, 2, 1), (90, 1, 2); SELECT * FROM order_values;",
            "INSERT INTO orders VALUES (91, 1, '2025-01-01', 'unpaid'); SELECT * FROM order_values;",
            "DELETE FROM items; SELECT * FROM order_values;",
            "UPDATE products SET price = price + 1; SELECT * FROM order_values;",
            "UPDATE orders SET day = '2026-01-01', state = 'unpaid'; SELECT * FROM order_values;",
        ),
    )


@task
def bestseller(random: Random) -> DatabaseTask:
    """Answer a question about the data."""
    setup = (
        shop(random) + "INSERT INTO items SELECT 24, id, 400 FROM products WHERE price = (SELECT min(price) "
        "FROM products) LIMIT 1;\n"
    )
    name = random.choice(["quilt", "harp", "anvil"])
    setup += (
        f"INSERT INTO products VALUES (50, '{name}', 9999999, 3, 1);\nINSERT INTO items VALUES (7, 50, 2);\n"
    )
    setup += "INSERT INTO products VALUES (51, 'statue', 99999999, 1, 1);\n"
    return DatabaseTask(
        "Which product has brought in the most money, pieces times price over all orders in whatever "
        "state? Give the name of the product, and leave the database as it is.",
        setup,
        "SELECT p.name FROM items i JOIN products p ON p.id = i.product_id GROUP BY p.id ORDER BY "
        "sum(i.pieces * p.price) DESC LIMIT 1",
        ("DELETE FROM items WHERE order_id = 7;",),
        answer=name,
        wrong_answers=("statue", "done", "50"),
    )
