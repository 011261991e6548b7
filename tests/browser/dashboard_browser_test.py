#!/usr/bin/python3 -B
"""The dashboard in a browser, under a real job: see run.sh."""
import json
import os
import re
import signal

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import cluster_processes
from cluster_processes import BINARIES, wait_until

MAX_PAGE_BYTES = 200_000


class DashboardBrowserTest(cluster_processes.ClusterTestCase):

  def setUp(self):
    super().setUp()
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1280,1600", "--disable-background-networking"):
      options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    self.browser = webdriver.Chrome(options=options)
    self.addCleanup(self.browser.quit)

  def open_dashboard(self, **flags):
    server = self.start_server(http="127.0.0.1:0", min_workers=2, keep_workers=1, lease="2s", eval_every=5, **flags)
    server.wait_for_log("dashboard=")
    self.browser.get(re.search(r"dashboard=(\S+)", server.log()).group(1))
    return server

  def text_of(self, name):
    return self.browser.find_element(By.ID, name).text

  def wait_for_text(self, name, text):
    wait_until(lambda: text in self.text_of(name), lambda: self.text_of(name) + self.logs())

  def curve(self):
    """Of the training loss: its points."""
    return self.browser.execute_script(
        "return (document.querySelector('#loss polyline.train')?.getAttribute('points') || '').split(' ')")

  def requested_hosts(self):
    urls = []
    for entry in self.browser.get_log("performance"):
      message = json.loads(entry["message"])["message"]
      if message["method"] == "Network.requestWillBeSent":
        urls.append(message["params"]["request"]["url"])
    return {re.match(r"(\w+:(//[^/:]*)?)", url).group(1) for url in urls}

  def take_screenshot(self, name, scheme="light", width=1280):
    folder = os.environ.get("SCREENSHOTS")
    if not folder:
      return
    os.makedirs(folder, exist_ok=True)
    self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                 {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                 {"width": width, "height": 1600, "deviceScaleFactor": 1, "mobile": False})
    self.browser.save_screenshot(os.path.join(folder, name + ".png"))

  def test_it_follows_a_job_that_loses_a_worker(self):
    server = self.open_dashboard(rounds=100_000)
    self.wait_for_text("waiting", "2 more workers")
    workers = [self.start_worker(name) for name in ("a", "b")]
    self.wait_for_text("state", "training")
    wait_until(lambda: len(self.curve()) > 2, self.logs)
    before = self.curve()
    wait_until(lambda: self.curve() != before, self.logs)
    self.assertIn("held out", self.text_of("loss-words"))
    names = self.browser.execute_script(
        "return [...document.querySelectorAll('#workers tbody tr')].map((row) => row.cells[0].textContent)")
    self.assertEqual(set(names), {"a", "b"})
    for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("narrow", "light", 390)):
      self.take_screenshot(name, scheme, width)
    # By keyboard: the next axis.
    self.browser.find_element(By.CSS_SELECTOR, "input[value=samples]").send_keys(Keys.ARROW_RIGHT)
    self.assertTrue(self.browser.find_element(By.CSS_SELECTOR, "input[value=tokens]").is_selected())

    workers[1].kill()
    self.wait_for_text("workers", "dropped")
    self.wait_for_text("events", "b")
    server.kill()
    self.wait_for_text("connection", "No connection")

    self.assertEqual(self.requested_hosts() - {"data:"}, {"http://127.0.0.1"})
    self.assertLess(len(self.browser.page_source), MAX_PAGE_BYTES)
    errors = [entry for entry in self.browser.get_log("browser") if entry["source"] == "javascript"]
    self.assertEqual(errors, [])

  def click(self, selector):
    self.browser.find_element(By.CSS_SELECTOR, selector).click()

  def test_orders_are_asked_back(self):
    server = self.open_dashboard(rounds=100_000)
    workers = [self.start_worker(name) for name in ("a", "b")]
    self.wait_for_text("state", "training")
    self.click("#pause")
    self.click("#ask-no")
    self.assertEqual(self.text_of("state"), "training")
    self.click("#pause")
    self.browser.find_element(By.ID, "ask-input").send_keys("lunch" + Keys.ENTER)
    self.wait_for_text("state", "paused")
    self.wait_for_text("facts", "lunch")
    self.wait_for_text("answer", "No round is opened any more")
    before = self.status()["round"]
    self.wait_for_text("pause", "Resume")
    self.take_screenshot("paused")
    self.assertEqual(self.status()["round"], before)
    self.click("#pause")
    self.click("#ask-yes")
    self.wait_for_text("state", "training")

    # The button of a worker is made anew with each status, and keeps the focus.
    self.browser.execute_script(
        "const it = document.querySelector('#workers button[data-key=\"evict b\"]'); it.focus(); it.dataset.before = 1")
    wait_until(lambda: not self.browser.execute_script("return document.querySelector('[data-before]')"), self.logs)
    self.assertEqual(self.browser.switch_to.active_element.get_attribute("data-key"), "evict b")
    self.browser.switch_to.active_element.send_keys(Keys.ENTER)
    self.click("#ask-yes")
    self.assertEqual(workers[1].wait(), 1, workers[1].log())
    self.wait_for_text("workers", "readmit")
    self.click("#stop")
    self.click("#ask-yes")
    self.assert_ends(server)
    self.assert_ends(workers[0])

  def finish_run(self, name, **flags):
    """A run that is over, in a folder beside the others."""
    server = self.start_server(eval_every=5, metrics_out=None, checkpoint_dir=self.path("runs", name), **flags)
    self.assert_ends(self.start_worker("w"))
    self.assert_ends(server)

  def serve(self, name):
    served = self.start([BINARIES["psctl"], "serve", self.path("runs", name)], "serve")
    served.wait_for_log("http://")
    self.browser.get(served.log().strip())
    return served

  def lines(self):
    """Of the chart of losses: the words at their ends."""
    return set(self.browser.execute_script(
        "return [...document.querySelectorAll('#loss text.end')].map((label) => label.textContent)"))

  def box_of_run(self, name, what):
    """The lines of the table are made anew with each event."""
    return self.browser.execute_script(f"return document.querySelector('#runs input[data-key=\"run {name}\"]').{what}")

  def check_run(self, name):
    self.box_of_run(name, "focus()")
    self.browser.switch_to.active_element.send_keys(Keys.SPACE)

  def wait_for_lines(self, *wanted):
    wait_until(lambda: self.lines() == set(wanted), lambda: f"{wanted}: {self.lines()} " + self.text_of("compare-answer"))

  def test_a_finished_run_is_shown_beside_others(self):
    os.makedirs(self.path("runs"))
    self.finish_run("slow", rounds=60, learning_rate=0.0003)
    self.finish_run("fast", rounds=100, learning_rate=0.003, seed=2)
    self.finish_run("own", rounds=80)
    os.makedirs(self.path("runs", "foreign"))
    self.write("runs/foreign/history.sqlite", "x" * 5000)
    served = self.serve("own")
    self.wait_for_text("finished", "This run is finished: no server is at work")
    self.assertEqual(self.text_of("state"), "finished")
    self.wait_for_text("facts", "80")  # it comes with the history, an event later
    for live in ("pause", "stop", "workers", "shards", "round"):
      self.assertFalse(self.browser.find_element(By.ID, live).is_displayed(), live)
    self.wait_for_lines("train", "held out")

    # By keyboard, and what cannot be read says why.
    self.wait_for_text("runs", "is no history of this release")
    self.assertTrue(self.box_of_run("foreign", "disabled"))
    self.check_run("slow")
    self.wait_for_lines("train", "held out", "A train", "A held out")
    self.assertEqual(self.browser.switch_to.active_element.get_attribute("data-key"), "run slow")
    self.check_run("fast")
    self.wait_for_lines("train", "held out", "A train", "A held out", "B train", "B held out")
    self.assertRegex(self.text_of("loss-words"), r"A is slow: train loss [\d.]+ nats.*B is fast: train loss [\d.]+ nats")
    dashes = self.browser.execute_script(
        "return [...document.querySelectorAll('#loss polyline')].map((line) => line.getAttribute('stroke-dasharray'))")
    self.assertEqual(len(set(dashes)), 3, "told apart by colour alone")
    for name, scheme, width in (("compared_light", "light", 1280), ("compared_dark", "dark", 1280), ("compared_narrow", "light", 390)):
      self.take_screenshot(name, scheme, width)

    # 16 tokens a sample, 2 samples a round.
    ticks = "return document.querySelector('#loss').textContent"
    self.assertNotIn("3,200", self.browser.execute_script(ticks))
    self.click("input[value=tokens]")
    self.assertIn("3,200", self.browser.execute_script(ticks))
    self.click("#show-train")
    self.wait_for_lines("held out", "A held out", "B held out")
    self.check_run("slow")
    self.wait_for_lines("held out", "B held out")

    served.kill(signal.SIGTERM)
    self.wait_for_text("connection", "No connection")
    self.assertEqual(self.requested_hosts() - {"data:"}, {"http://127.0.0.1"})
    self.assertLess(len(self.browser.page_source), MAX_PAGE_BYTES)

  def test_a_job_that_runs_is_compared_and_its_own_folder_says_so(self):
    os.makedirs(self.path("runs"))
    self.finish_run("before", rounds=40)
    server = self.open_dashboard(rounds=100_000, checkpoint_dir=self.path("runs", "now"), checkpoint_every=5)
    for name in ("a", "b"):
      self.start_worker(name)
    self.wait_for_text("state", "training")
    self.wait_for_text("runs", "before")
    self.check_run("before")
    self.wait_for_lines("train", "held out", "A train", "A held out")
    self.assertTrue(self.browser.find_element(By.ID, "axis-tokens").is_displayed())
    # The server writes what there is to be shown without it now and then.
    wait_until(lambda: os.path.exists(self.path("runs", "now", "history.sqlite")), self.logs)
    self.serve("now")
    self.wait_for_text("finished", "A server is at work in this folder")
    server.kill()
    self.wait_for_text("finished", "This run is finished")

  def test_names_of_runs_are_text(self):
    os.makedirs(self.path("runs"))
    self.finish_run("own", rounds=5)
    self.finish_run("<img src=x onerror='window.broken = 1'>", rounds=5)
    self.serve("own")
    self.wait_for_text("runs", "<img src=x")
    self.browser.execute_script("document.querySelector('#runs input').click()")
    self.wait_for_lines("train", "held out", "A train", "A held out")
    self.assertIsNone(self.browser.execute_script("return window.broken"))

  def test_models_without_tokens_have_no_such_axis(self):
    server = self.open_dashboard(rounds=100_000)
    self.browser.execute_script("source.close()")  # what is shown is what follows
    curve = "{round: [0, 1], samples: [2, 4], seconds: [1, 2], loss: [2, 1]}"
    for tokens, is_there in ((64, True), (1, False), (0, False)):
      self.browser.execute_script(f"curves = {{tokens_per_sample: {tokens}, trained: {curve}, heldout: {curve}, events: []}}; showHistory()")
      self.assertEqual(self.browser.find_element(By.ID, "axis-tokens").is_displayed(), is_there, tokens)
      if is_there:
        self.click("input[value=tokens]")
    self.assertTrue(self.browser.find_element(By.CSS_SELECTOR, "input[value=samples]").is_selected())
    server.kill()

  def test_names_of_workers_are_text(self):
    # What a program tells is shown as it is, wherever it comes from.
    server = self.open_dashboard(rounds=100_000)
    self.browser.execute_script(
        "source.close(); showStatus({state: 'training', workers: [{name: '<img src=x onerror=\"window.broken = 1\">', state: 'member'}]})")
    self.assertIn("<img src=x", self.text_of("workers"))
    self.assertIsNone(self.browser.execute_script("return window.broken"))
    server.kill()


if __name__ == "__main__":
  cluster_processes.main()
