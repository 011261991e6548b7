#!/usr/bin/python3 -B
"""The dashboard in a browser, under a real job: see run.sh."""
import json
import os
import re

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import cluster_processes
from cluster_processes import wait_until

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
    rows = self.browser.find_elements(By.CSS_SELECTOR, "#workers tbody tr")
    self.assertEqual({row.text.split()[0] for row in rows}, {"a", "b"})
    for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("narrow", "light", 390)):
      self.take_screenshot(name, scheme, width)
    # By keyboard: the next axis.
    self.browser.find_element(By.CSS_SELECTOR, "input[value=samples]").send_keys(Keys.ARROW_RIGHT)
    self.assertTrue(self.browser.find_element(By.CSS_SELECTOR, "input[value=seconds]").is_selected())

    workers[1].kill()
    self.wait_for_text("workers", "expired")
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

  def test_names_of_workers_are_text(self):
    # What a program tells is shown as it is, wherever it comes from.
    server = self.open_dashboard(rounds=100_000)
    self.browser.execute_script(
        "showStatus({state: 'training', workers: [{name: '<img src=x onerror=\"window.broken = 1\">', state: 'member'}]})")
    self.assertIn("<img src=x", self.text_of("workers"))
    self.assertIsNone(self.browser.execute_script("return window.broken"))
    server.kill()


if __name__ == "__main__":
  cluster_processes.main()
