// SPDX-License-Identifier: Apache-2.0

// Flags that give a program its identity and the authority that it trusts. All programs have these
// flags.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/credentials.h"

namespace lodestar::security {

struct SecurityFlags {
  // The value of --join or, if it is not given, of $LODESTAR_JOIN: a join string, or the path of a
  // file with a join string. Empty means that neither is given.
  std::string join;
  bool is_join_from_environment = false;
  // Name of the flag that gives the join string, for use in messages.
  std::string join_flag = "--join";
  // The folder in which the programs of this user keep their state. It is the value of --state_dir
  // or else DefaultStateDir(). Empty means that there is no such folder.
  std::string state_dir;
  // Name of this machine for names in `state_dir`, because several machines may share that folder.
  // CompleteSecurityFlags() sets it to HostFileName() if it is empty.
  std::string host;
  // Files from --tls_key, --tls_cert and --tls_ca. Either all three or none are set.
  CredentialFiles own;
  bool insecure = false;

  bool has_own() const { return !own.key.empty(); }
};

// Returns the flags of the command line after CompleteSecurityFlags(). Errors: those of
// CompleteSecurityFlags().
absl::StatusOr<SecurityFlags> ReadSecurityFlags();
// Returns `given`, and takes what it does not have from the environment. Errors: InvalidArgument
// (only one or two of the three --tls_... flags are given, or flags contradict each other, or
// $LODESTAR_JOIN is empty).
absl::StatusOr<SecurityFlags> CompleteSecurityFlags(SecurityFlags given);
// Returns the names of these flags, for the program's help.
std::vector<std::string> SecurityFlagNames();

// Returns the first folder whose variable is set: $STATE_DIRECTORY (systemd sets it),
// $XDG_STATE_HOME/lodestar, $HOME/.local/state/lodestar. Empty means that none of the variables is
// set.
std::string DefaultStateDir();

// Returns the name of this machine as text for names of files. Empty means that the machine has no
// name.
std::string HostFileName();

}  // namespace lodestar::security
