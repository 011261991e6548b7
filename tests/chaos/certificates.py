# SPDX-License-Identifier: Apache-2.0
"""Certificates of a cluster's own, made with openssl: who_may_join.md, "Certificates of your own"."""
import os
import subprocess


class Certificates:
  """`folder` is made, and gets an authority and what is asked for."""

  def __init__(self, folder):
    self._folder = folder
    os.makedirs(folder)
    self._run("req", "-x509", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
              "-days", "2", "-subj", "/CN=chaos", "-keyout", self._path("ca.key"),
              "-out", self._path("ca.pem"))

  def flags(self, role, name):
    """For a program that is to have the certificate of that name in that role."""
    base = self._path(f"{role}-{name}")
    if not os.path.exists(base + ".pem"):
      self._issue(base, role, name)
    return [f"--tls_cert={base}.pem", f"--tls_key={base}.key", f"--tls_ca={self._path('ca.pem')}"]

  def _issue(self, base, role, name):
    is_server = role == "server"
    names = f"URI:spiffe://chaos/{role}/{name}" + (",DNS:lodestar,IP:127.0.0.1" if is_server else "")
    usages = "serverAuth,clientAuth" if is_server else "clientAuth"
    with open(base + ".ext", "w", encoding="ascii") as file:
      file.write(f"subjectAltName={names}\nextendedKeyUsage={usages}\n")
    self._run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
              "-subj", f"/CN={name}", "-keyout", base + ".key", "-out", base + ".csr")
    self._run("x509", "-req", "-in", base + ".csr", "-CA", self._path("ca.pem"),
              "-CAkey", self._path("ca.key"), "-CAcreateserial", "-days", "2",
              "-extfile", base + ".ext", "-out", base + ".pem")
    os.chmod(base + ".key", 0o600)

  def _path(self, name):
    return os.path.join(self._folder, name)

  def _run(self, *words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)
