#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a browser, under a real job: see run.sh."""
import base64
import json
import os
import re
import signal
import subprocess

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, wait_until

MAX_PAGE_BYTES = 200_000
WIDTHS = (390, 1024, 1440)  # of a telephone, a tablet and a desk

# What reaches out of the page to the side, or out of a box that hides what reaches out of it.
CUT_ELEMENTS = """
const isShown = (node) => node.checkVisibility({visibilityProperty: true}) && !node.closest("thead, dialog:not([open])");
const width = document.documentElement.clientWidth;
const cut = [...document.querySelectorAll("body *")].filter(isShown).filter((node) => {
  const box = node.getBoundingClientRect();
  const hides = node instanceof HTMLElement && node.tagName !== "INPUT" && getComputedStyle(node).overflowX !== "visible";
  return box.left < -1 || box.right > width + 1 || (hides && node.scrollWidth > node.clientWidth + 1);
});
return cut.map((node) => node.tagName + "#" + node.id + "." + node.className + " " + node.textContent.slice(0, 40));
"""

# Lists heading, field and buttons of the open dialog that are not in view.
DIALOG_PARTS_OUT_OF_VIEW = """
const dialog = document.querySelector("dialog[open]");
return [...dialog.querySelectorAll("h2, p, label:not([hidden]) input, button")].filter((node) => {
  const box = node.getBoundingClientRect();
  const isInside = box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
  const atMiddle = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
  return !isInside || !atMiddle || !(node.contains(atMiddle) || atMiddle.contains(node));
}).map((node) => node.tagName + "#" + node.id);
"""


class DashboardBrowserTest(cluster_processes.ClusterTestCase):

  def setUp(self):
    super().setUp()
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1280,1600", "--disable-background-networking",
                     "--ignore-certificate-errors"):
      options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    self.browser = webdriver.Chrome(options=options)
    self.addCleanup(self.browser.quit)

  def open_dashboard(self, **flags):
    server = self.start_server(**{"http": "127.0.0.1:0", "min_workers": 2, "keep_workers": 1, "lease": "2s",
                                  "eval_every": 5, **flags})
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

  def set_size(self, width, height):
    self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    wait_until(lambda: self.browser.execute_script("return innerWidth") == width, lambda: f"a width of {width}")

  def assert_nothing_is_cut(self, width):
    self.assertEqual(self.browser.execute_script(CUT_ELEMENTS), [], width)
    self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), width)

  def buttons(self):
    """Those that are shown and can be pressed outside the dialog: what they are called."""
    return self.browser.execute_script("""
        return [...document.querySelectorAll("main button")]
            .filter((button) => button.checkVisibility() && !button.disabled && !button.closest("dialog"))
            .map((button) => button.getAttribute("aria-label") || button.textContent)""")

  def press(self, name):
    """Presses the button as a mouse does, at its place on the page."""
    button = self.browser.execute_script("""
        const found = [...document.querySelectorAll("main button")]
            .find((one) => one.checkVisibility() && (one.getAttribute("aria-label") || one.textContent) === arguments[0]);
        if (found) found.scrollIntoView({block: "center"});
        return found""", name)
    self.assertIsNotNone(button, name)
    button.click()

  def is_asked(self):
    return self.browser.execute_script("return document.querySelector('dialog').open")

  def take_screenshot(self, name, scheme="light", width=1280):
    folder = os.environ.get("SCREENSHOTS")
    if not folder:
      return
    os.makedirs(folder, exist_ok=True)
    self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                 {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    height = self.browser.execute_script("return Math.max(1600, document.documentElement.scrollHeight)")
    self.set_size(width, height)
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
        "return [...document.querySelectorAll('#workers tbody tr')].map((row) => row.cells[0].firstChild.textContent)")
    self.assertEqual(set(names), {"a", "b"})
    for name, scheme, width in (("light", "light", 1440), ("dark", "dark", 1440), ("medium", "light", 1024), ("narrow", "light", 390)):
      self.take_screenshot(name, scheme, width)
    self.assertRegex(self.text_of("facts"), r"held-out loss\n[\d.]+ bits/byte\n[\d.]+ nats")
    self.assertRegex(self.text_of("settings"), r"eval_every\n5\b")
    # By keyboard: the next axis.
    self.browser.find_element(By.CSS_SELECTOR, "input[value=samples]").send_keys(Keys.ARROW_RIGHT)
    self.assertTrue(self.browser.find_element(By.CSS_SELECTOR, "input[value=tokens]").is_selected())

    workers[1].kill()
    self.wait_for_text("workers", "dropped")
    self.wait_for_text("events", "worker b\nhas ended: ")
    self.assertRegex(self.text_of("events"), r"worker a\nhas joined with [\d,]+ training samples")
    self.assertNotRegex(self.text_of("events"), r"(?m)(^| )[a-z_]+=", "events are sentences")
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
    self.wait_for_text("answer", "No new round starts")
    before = self.status()["round"]
    self.wait_for_text("pause", "Resume")
    self.take_screenshot("paused")
    self.assertEqual(self.status()["round"], before)
    self.click("#pause")
    self.click("#ask-yes")
    self.wait_for_text("state", "training")

    # The button of a worker stays where it is when a status comes, and keeps the focus.
    self.browser.execute_script("""
        document.querySelector('#workers button[data-key="evict b"]').focus();
        window.statuses = 0;
        source.addEventListener("status", () => { ++window.statuses; });""")
    wait_until(lambda: self.browser.execute_script("return window.statuses") > 1, self.logs)
    self.assertEqual(self.browser.switch_to.active_element.get_attribute("data-key"), "evict b")
    self.browser.switch_to.active_element.send_keys(Keys.ENTER)
    self.click("#ask-yes")
    self.assertEqual(workers[1].wait(), 1, workers[1].log())
    self.wait_for_text("workers", "readmit")
    self.click("#stop")
    self.click("#ask-yes")
    self.assert_ends(server)
    self.assert_ends(workers[0])

  def test_every_button_can_be_pressed_at_every_width(self):
    long_name = "box-" + 50 * "n"
    server = self.open_dashboard(rounds=100_000, checkpoint_dir=self.path("kept"))
    workers = [self.start_worker(name) for name in (long_name, "b", "c")]
    self.wait_for_text("state", "training")
    self.wait_for_text("workers", "c")
    wait_until(lambda: len(self.curve()) > 2, self.logs)
    for width in WIDTHS:
      self.set_size(width, 700)
      self.assert_nothing_is_cut(width)
      names = self.buttons()
      self.assertLessEqual({"Pause", "Checkpoint", "Set learning rate", "Stop the job", "evict " + long_name, "evict b",
                            "Loss: zoom in", "Workers: zoom in"}, set(names))
      for name in names:
        self.press(name)
        if not self.is_asked():
          self.assertRegex(name, ": (zoom|show)")
          continue
        self.assertEqual(self.browser.execute_script(DIALOG_PARTS_OUT_OF_VIEW), [], f"{name} at {width}")
        self.assert_nothing_is_cut(width)
        self.press_in_dialog("ask-no")
      self.assert_nothing_is_cut(width)
      # Those that are there only once a chart is zoomed.
      for name in ("Loss: zoom out", "Loss: zoom in", "Loss: show all", "Workers: zoom in", "Workers: show all"):
        self.press(name)
      self.assertIsNone(self.browser.execute_script("return ofRounds.range"))
      # The orders themselves, but those that end something.
      for name, answer in (("Checkpoint", "checkpoint"), ("Set learning rate", "The next round has"),
                           ("Pause", "No new round starts")):
        self.press(name)
        self.press_in_dialog("ask-yes")
        self.wait_for_text("answer", answer)
      self.wait_for_text("pause", "Resume")
      self.press("Resume")
      self.assertEqual(self.browser.execute_script(DIALOG_PARTS_OUT_OF_VIEW), [], width)
      self.press_in_dialog("ask-yes")
      self.wait_for_text("pause", "Pause")
    self.press("evict c")
    self.press_in_dialog("ask-yes")
    self.wait_for_text("workers", "readmit")
    for width in WIDTHS:
      self.set_size(width, 700)
      self.assert_nothing_is_cut(width)
      self.press("readmit c")
      self.assertEqual(self.browser.execute_script(DIALOG_PARTS_OUT_OF_VIEW), [], width)
      self.press_in_dialog("ask-no")
    self.press("readmit c")
    self.press_in_dialog("ask-yes")
    self.press("Stop the job")
    self.press_in_dialog("ask-yes")
    for process in (server, *workers[:2]):
      self.assert_ends(process)

  def press_in_dialog(self, name):
    self.browser.find_element(By.ID, name).click()
    wait_until(lambda: not self.is_asked(), lambda: self.text_of("ask-answer") + self.logs())

  def test_only_those_who_may_order_see_buttons(self):
    """A page with TLS on this machine: it needs the key of an operator."""
    server = self.open_dashboard(tls="true", checkpoint_dir=self.path("kept"), state_dir=self.path("state"))
    member = "showStatus({state: 'training', workers: [{name: 'w', state: 'member'}]})"
    self.wait_for_text("no-orders", "psctl dashboard")
    self.browser.execute_script("source.close(); " + member)
    self.assertEqual([name for name in self.buttons() if "zoom" not in name], [])
    shown = subprocess.run([BINARIES["psctl"], "dashboard", f"--server=127.0.0.1:{self.port}", "--state_dir=" + self.path("state")],
                           capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    self.browser.get("about:blank")
    self.browser.get(shown.stdout.strip())
    wait_until(lambda: "Pause" in self.buttons(), self.logs)
    self.browser.execute_script("source.close(); " + member)
    self.assertIn("evict w", self.buttons())
    self.assertFalse(self.browser.find_element(By.ID, "no-orders").is_displayed())
    server.kill()

  def test_viewers_of_other_machines_see_no_buttons(self):
    server = self.start_server(http="0.0.0.0:0", tls="true", checkpoint_dir=self.path("kept"), state_dir=self.path("state"))
    server.wait_for_log("dashboard=")
    port = re.search(r"dashboard=\S+:(\d+)/", server.log()).group(1)
    for role, has_buttons in (("viewer", False), ("operator", True)):
      made = subprocess.run([BINARIES["psctl"], "token", "create", "--role=" + role, f"--server=127.0.0.1:{self.port}",
                             "--state_dir=" + self.path("state")], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
      self.browser.execute_cdp_cmd("Network.enable", {})
      self.browser.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {
          "Authorization": "Basic " + base64.b64encode(("me:" + made.stdout.strip()).encode()).decode()}})
      self.browser.get(f"https://127.0.0.1:{port}/")
      wait_until(lambda: self.text_of("state") != "connecting", self.logs)
      if has_buttons:
        wait_until(lambda: "Pause" in self.buttons(), self.logs)
      else:
        self.wait_for_text("no-orders", "operator")
        self.assertNotIn("Pause", self.buttons())
    server.kill()

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
    self.wait_for_text("finished", "This run is finished, because no server is running")
    self.assertEqual(self.text_of("state"), "finished")
    self.wait_for_text("facts", "80")  # it comes with the history, an event later
    self.assertRegex(self.text_of("facts"), r"best held-out loss\n[\d.]+ bits/byte\n[\d.]+ nats")
    self.assertRegex(self.text_of("settings"), r"rounds\n80\b")
    self.assertGreater(len(self.points("learning-rate")), 2)
    for live in ("pause", "stop", "workers", "shards", "round"):
      self.assertFalse(self.browser.find_element(By.ID, live).is_displayed(), live)
    self.wait_for_lines("train", "held out")

    # By keyboard, and what cannot be read says why.
    self.wait_for_text("runs", "is not a run history that this release can read")
    self.assertTrue(self.box_of_run("foreign", "disabled"))
    self.check_run("slow")
    self.wait_for_lines("train", "held out", "A train", "A held out")
    self.assertEqual(self.browser.switch_to.active_element.get_attribute("data-key"), "run slow")
    self.check_run("fast")
    self.wait_for_lines("train", "held out", "A train", "A held out", "B train", "B held out")
    self.assertRegex(self.text_of("loss-words"), r"A is slow: train loss [\d.]+ bits/byte .*B is fast: train loss [\d.]+ bits/byte")
    differences = self.browser.execute_script(
        "return [...document.querySelectorAll('#differences tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
    self.assertIn(["seed", "1", "1", "2"], differences)
    self.assertIn(["rounds", "80", "60", "100"], differences)
    self.assertNotIn("mode", [row[0] for row in differences])
    dashes = self.browser.execute_script(
        "return [...document.querySelectorAll('#loss polyline')].map((line) => line.getAttribute('stroke-dasharray'))")
    self.assertEqual(len(set(dashes)), 3, "told apart by colour alone")
    for name, scheme, width in (("compared_light", "light", 1440), ("compared_dark", "dark", 1440), ("compared_medium", "light", 1024),
                                ("compared_narrow", "light", 390)):
      self.take_screenshot(name, scheme, width)
    for width in WIDTHS:
      self.set_size(width, 700)
      self.assert_nothing_is_cut(width)

    # 16 tokens a sample, 2 samples a round.
    self.assertIn("200", self.ticks("x"))
    self.click("input[value=tokens]")
    self.assertIn("3,000", self.ticks("x"))
    self.assertNotIn("200", self.ticks("x"))
    self.click("#show-train")
    self.wait_for_lines("held out", "A held out", "B held out")
    self.check_run("slow")
    self.wait_for_lines("held out", "B held out")

    served.kill(signal.SIGTERM)
    self.wait_for_text("connection", "No connection")
    self.assertEqual(self.requested_hosts() - {"data:"}, {"http://127.0.0.1"})
    self.assertLess(len(self.browser.page_source), MAX_PAGE_BYTES)

  def points(self, chart):
    """Of the first line of a chart: its points on the screen."""
    return self.browser.execute_script(
        "return (document.querySelector(`#${arguments[0]} polyline`)?.getAttribute('points') || '').split(' ')", chart)

  def ticks(self, axis, chart="loss"):
    return self.browser.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} .tick-${arguments[1]}`)].map((tick) => tick.textContent)", chart, axis)

  def tip(self):
    return self.browser.execute_script("return document.querySelector('.tip:not([hidden])')?.innerText || ''")

  def test_curves_can_be_read(self):
    os.makedirs(self.path("runs"))
    self.finish_run("own", rounds=83)
    self.serve("own")
    self.wait_for_text("facts", "83")
    self.set_size(1440, 1000)
    self.click("input[value=round]")
    self.assertEqual(self.ticks("x"), ["0", "20", "40", "60", "80"])
    in_bits = self.ticks("y")
    self.click("input[value=nats]")
    self.assertNotEqual(self.ticks("y"), in_bits)

    # By mouse.
    chart = self.browser.find_element(By.ID, "loss")
    ActionChains(self.browser).move_to_element(chart).perform()
    self.assertRegex(self.tip(), r"^[\d,]+ rounds\ntrain\n[\d.]+ nats\nheld out\n[\d.]+ nats$")
    ActionChains(self.browser).click_and_hold().move_by_offset(150, 0).release().perform()
    begin, end = self.browser.execute_script("return ofRounds.range")
    self.assertTrue(0 < begin < end < 83, (begin, end))
    for one in ("loss", "rate", "learning-rate"):
      self.assertLess(int(self.ticks("x", one)[-1]), 80, "charts over the same axis are zoomed together")
    # By keyboard.
    chart.send_keys("0")
    self.assertIsNone(self.browser.execute_script("return ofRounds.range"))
    chart.send_keys(Keys.END)
    self.assertRegex(self.tip(), r"^82 rounds\ntrain\n")
    chart.send_keys(Keys.ARROW_LEFT)
    self.assertRegex(self.tip(), r"^81 rounds\n")
    chart.send_keys("+")
    self.assertIsNotNone(self.browser.execute_script("return ofRounds.range"))
    chart.send_keys("0")

    before = self.points("loss")
    self.click("#log-loss")
    self.assertNotEqual(self.points("loss"), before)
    self.click("#log-loss")
    self.assertEqual(self.points("loss"), before)
    self.browser.find_element(By.ID, "smoothing").send_keys("medium")
    lines = self.browser.execute_script(
        "return [...document.querySelectorAll('#loss polyline')].map((line) => line.getAttribute('class'))")
    self.assertEqual(sorted(lines), ["heldout", "train", "train raw"])
    self.assertEqual(self.lines(), {"train", "held out"})

  def test_workers_have_curves_while_the_page_is_open(self):
    server = self.open_dashboard(rounds=100_000)
    self.wait_for_text("worker-curves-words", "no history of workers")
    self.browser.execute_script("source.close()")  # what is shown is what follows
    # More statuses than the page remembers, in parts: the browser limits the seconds of one script.
    for _ in range(14):
      self.browser.execute_script("""
          for (let moment = 0; moment < 50; ++moment) {
            showStatus({state: "training", workers: [...Array(300).keys()].map((i) => (
                {name: "w" + i, state: "member", samples_per_second: 10 + i, staleness: i % 3}))});
          }""")
    ends = "return [...document.querySelectorAll('#worker-curves text.end')].map((label) => label.textContent)"
    self.assertEqual(set(self.browser.execute_script(ends)), {f"w{i}" for i in range(6)}, "the slowest")
    self.assertEqual(self.browser.execute_script("return [moments.length < maxMoments, secondsPerMoment > 0, moments[0].values.size]"),
                     [True, True, 128])
    self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#workers tbody tr")), 50)
    self.assertIn("300 workers; the first 50", self.text_of("worker-count"))
    self.browser.find_element(By.ID, "worker-filter").send_keys("w29")
    self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#workers tbody tr")), 11)
    box = self.browser.find_element(By.CSS_SELECTOR, "#workers input[data-key='curve w7'], #workers input[data-key='curve w29']")
    box.send_keys(Keys.SPACE)
    self.assertEqual(self.browser.execute_script(ends), ["w29"])
    self.browser.find_element(By.ID, "worker-metric").send_keys("rounds")
    self.assertIn("rounds behind", self.text_of("worker-curves-words"))
    server.kill()

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
    self.wait_for_text("finished", "A server is running in this folder")
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
