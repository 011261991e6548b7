#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/kubernetes: see run.sh."""
import pathlib
import re
import subprocess
import unittest

import kubernetes_validate
import yaml

FOLDER = pathlib.Path("deploy/kubernetes")
PROGRAMS = {"ps_server": "bazel-bin/server/ps_server", "gpu_worker": "bazel-bin/worker/gpu_worker"}


def built(folder):
  text = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
  return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def pods_of(manifests):
  return [manifest["spec"]["template"] for manifest in manifests if "template" in manifest["spec"]]


class ManifestsTest(unittest.TestCase):

  def setUp(self):
    self.made = {folder.parent: built(folder.parent) for folder in sorted(FOLDER.rglob("kustomization.yaml"))}
    self.assertGreaterEqual(len(self.made), 2)

  def test_all_fits_the_schemas(self):
    for folder, manifests in self.made.items():
      kinds = set()
      for manifest in manifests:
        with self.subTest(folder=folder, kind=manifest["kind"]):
          kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
        kinds.add(manifest["kind"])
      self.assertLessEqual({"StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}, kinds)

  def test_flags_are_those_of_the_programs(self):
    for folder, manifests in self.made.items():
      for pod in pods_of(manifests):
        for container in pod["spec"]["containers"]:
          program, *flags = container["args"]
          known = subprocess.run([PROGRAMS[program], "--helpfull"], capture_output=True, text=True, check=True).stdout
          for flag in flags:
            name = re.match(r"--\w+", flag).group(0)
            self.assertRegex(known, rf"(?m)^  {name}(=|$)", f"{folder}: {program}")

  def test_selectors_find_their_pods(self):
    for folder, manifests in self.made.items():
      labels = [pod["metadata"]["labels"] for pod in pods_of(manifests)]
      for manifest in manifests:
        spec = manifest["spec"]
        selector = spec.get("selector", spec.get("podSelector", {}))
        wanted = selector.get("matchLabels", selector if manifest["kind"] == "Service" else {})
        self.assertTrue(wanted, manifest)
        found = [one for one in labels if wanted.items() <= one.items()]
        self.assertEqual(len(found), 1, f"{folder}: {manifest['kind']} {manifest['metadata']['name']}")

  def test_nobody_is_root_or_may_write_into_the_image(self):
    for manifests in self.made.values():
      for pod in pods_of(manifests):
        self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"])
        for container in pod["spec"]["containers"]:
          context = container["securityContext"]
          self.assertTrue(context["readOnlyRootFilesystem"])
          self.assertFalse(context["allowPrivilegeEscalation"])
          self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
          self.assertIn("memory", container["resources"]["limits"])


if __name__ == "__main__":
  unittest.main()
