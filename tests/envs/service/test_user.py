from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import gem_core
from gem_core.errors import ServiceError
from gem_envs._service.shop_tasks import shop
from gem_envs._service.user import END, scripted_message

TASK = shop().tasks[0]


def test_the_scripted_user_answers_with_what_is_requested():
    assert scripted_message(TASK, None) == TASK.request
    assert scripted_message(TASK, "What is your email address?") == TASK.facts["email"]
    both = scripted_message(TASK, "Your name and postcode, please?")
    assert both == f"{TASK.facts['name']} {TASK.facts['postcode']}"
    assert scripted_message(TASK, "I will cancel it. Shall I?") == "Yes, please."
    assert scripted_message(TASK, "Is there anything else?") == END
    told = scripted_message(TASK, "I will cancel it; the reason is a change of mind. Shall I go ahead?")
    assert told.startswith("Yes, please.")
    assert scripted_message(TASK, "May I have your email address?") == TASK.facts["email"]
    assert scripted_message(TASK, "It is done. Have a great day!") == END
    assert (
        scripted_message(TASK, "I can cancel it. Shall I go ahead? Is there anything else?") == "Yes, please."
    )
    assert scripted_message(TASK, "It is cancelled. Is there anything else I can do for you?") == END
    again = scripted_message(TASK, "Bananas are yellow.")
    assert again.startswith(TASK.request)
    assert TASK.facts["email"] in again


@pytest.fixture
def endpoint():
    """An endpoint that returns the entries of `answers` and records the requests."""
    asked, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(answers[min(len(asked), len(answers)) - 1]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked, answers
    server.shutdown()
    server.server_close()
    thread.join()


def said(text):
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def test_a_model_as_the_user(endpoint):
    url, asked, answers = endpoint
    answers += [said("I want to cancel."), said(f"Thanks. {END}")]
    env = gem_core.make("service:Shop-v0", user=url, user_model="m", task=0)
    assert env.blocking
    observation, _ = env.reset(seed=0)
    assert observation.endswith("Customer: I want to cancel.")
    assert asked[0]["messages"][0]["content"].endswith(TASK.instruction)
    _, reward, terminated, _, _ = env.step("Anything more?")
    assert (reward, terminated) == (0.0, True)
    roles = [message["role"] for message in asked[1]["messages"]]
    assert roles == ["system", "assistant", "user"]  # from the user's point of view
    assert asked[0]["model"] == "m"


def test_an_endpoint_without_a_usable_answer(endpoint):
    url, _, answers = endpoint
    answers.append({"error": "busy"})
    env = gem_core.make("service:Shop-v0", user=url, user_model="m", task=0)
    with pytest.raises(ServiceError, match="the user's endpoint sent no message"):
        env.reset(seed=0)
