// SPDX-License-Identifier: Apache-2.0

#include "common/security/security_flags.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/local_path.h"

ABSL_FLAG(std::string, join, "",
          "Join string (lodestar://...) with which this machine enrols in the cluster, or a "
          "file with it that only you may read. `psctl token create` prints it. The machine "
          "keeps the certificate that it gets in --state_dir. Empty means $LODESTAR_JOIN, "
          "which keeps the string out of the list of processes. If that is not set either, the "
          "kept certificate for the cluster is used, or plain text.");
ABSL_FLAG(lodestar::LocalPath, state_dir, "",
          "Folder for keys and certificates, open to this user only. Empty means $STATE_DIRECTORY, "
          "$XDG_STATE_HOME/lodestar or ~/.local/state/lodestar. On the coordinator, the folder "
          "also has the cluster's authority: keep a copy of the folder in a safe place. A worker "
          "with this flag also keeps its residuals in the folder (see --keep_residuals).");
ABSL_FLAG(
    lodestar::LocalPath, tls_cert, "",
    "File with a certificate (PEM) of your own authority, instead of --join. One of its names must "
    "be the URI spiffe://DOMAIN/ROLE/NAME, where ROLE is server, worker, operator or viewer. The "
    "program reads the file again when it changes. Requires --tls_key and --tls_ca.");
ABSL_FLAG(lodestar::LocalPath, tls_key, "",
          "File with the private key (PEM) of --tls_cert, which only you may read.");
ABSL_FLAG(lodestar::LocalPath, tls_ca, "",
          "File with the certificates (PEM) of the authorities that this program trusts, for "
          "use with --tls_cert.");
ABSL_FLAG(bool, insecure, false,
          "Allow plain text to and from other machines. Anything on the network between them "
          "can then read and change the traffic. Without this flag, plain text is used only "
          "within this machine.");

namespace lodestar::security {

std::string DefaultStateDir() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string given = variable("STATE_DIRECTORY"); !given.empty()) {
    // systemd may give several folders, separated by colons. The first one is used.
    return given.substr(0, given.find(':'));
  }
  if (const std::string home = variable("XDG_STATE_HOME"); !home.empty()) {
    return absl::StrCat(home, "/lodestar");
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : absl::StrCat(home, "/.local/state/lodestar");
}

std::string HostFileName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name)) != 0) return "";
  std::string host(name);
  for (char& c : host) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_') c = '-';
  }
  return host;
}

std::vector<std::string> SecurityFlagNames() {
  return {"join", "state_dir", "tls_cert", "tls_key", "tls_ca", "insecure"};
}

absl::StatusOr<SecurityFlags> ReadSecurityFlags() {
  SecurityFlags flags;
  flags.join = absl::GetFlag(FLAGS_join);
  flags.state_dir = absl::GetFlag(FLAGS_state_dir);
  flags.own = {.key = absl::GetFlag(FLAGS_tls_key),
               .certificate = absl::GetFlag(FLAGS_tls_cert),
               .authority = absl::GetFlag(FLAGS_tls_ca)};
  flags.insecure = absl::GetFlag(FLAGS_insecure);
  return CompleteSecurityFlags(std::move(flags));
}

absl::StatusOr<SecurityFlags> CompleteSecurityFlags(SecurityFlags flags) {
  if (flags.state_dir.empty()) flags.state_dir = DefaultStateDir();
  if (flags.host.empty()) flags.host = HostFileName();
  const int num_own =
      !flags.own.key.empty() + !flags.own.certificate.empty() + !flags.own.authority.empty();
  if (num_own != 0 && num_own != 3) {
    return absl::InvalidArgumentError(
        "--tls_cert, --tls_key and --tls_ca belong together; give all three, or none of them");
  }
  if (num_own == 3 && !flags.join.empty()) {
    return absl::InvalidArgumentError(
        "--join and --tls_cert exclude each other: with --join the cluster's authority gives the "
        "certificate. Leave one of the two out");
  }
  if (flags.insecure && (num_own == 3 || !flags.join.empty())) {
    return absl::InvalidArgumentError(
        "--insecure is plain text, but --join and --tls_cert encrypt; leave --insecure out, or the "
        "other flags");
  }
  if (flags.join.empty() && num_own == 0 && !flags.insecure) {
    const char* const from_environment = std::getenv("LODESTAR_JOIN");
    if (from_environment != nullptr && *from_environment == '\0') {
      return absl::InvalidArgumentError(
          "$LODESTAR_JOIN is set but empty, so the command that should make the join string has "
          "probably failed. Make one with psctl token create. For plain text, give --insecure or "
          "unset LODESTAR_JOIN");
    }
    if (from_environment != nullptr) flags.join = from_environment;
    flags.is_join_from_environment = !flags.join.empty();
  }
  return flags;
}

}  // namespace lodestar::security
