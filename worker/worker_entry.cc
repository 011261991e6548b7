// SPDX-License-Identifier: Apache-2.0

#include "worker/worker_entry.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/worker_name.h"
#include "proto/grpc_environment.h"
#include "proto/tls_doubts.h"

namespace lodestar::worker {
namespace {

constexpr absl::Duration kLookAtServer = absl::Seconds(2);
constexpr size_t kMaxHostBytes = 48;  // Maximum length of the host's name in the worker's name.

// Returns a suffix that differs between processes with the same host name: the process ID. In a
// container, the last digits of its PID namespace are added, because the first process of every
// container has ID 1.
std::string ProcessSuffix() {
  // Few digits, because names should be short.
  constexpr int kNamespaceDigits = 5;
  // The PID namespace outside of containers (PROC_PID_INIT_INO of Linux).
  constexpr absl::string_view kOfTheMachine = "pid:[4026531836]";
  std::error_code error;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  absl::string_view number = space;
  if (error || space == kOfTheMachine || !absl::ConsumePrefix(&number, "pid:[") ||
      !absl::ConsumeSuffix(&number, "]")) {
    return absl::StrCat(getpid());
  }
  number.remove_prefix(number.size() - std::min<size_t>(number.size(), kNamespaceDigits));
  return absl::StrCat(getpid(), "-", number);
}

// Returns true if the worker can join over TLS: with a join string, or with a certificate.
bool HasCredentials(const WorkerEntrance& entrance) {
  const security::SecurityFlags& security = entrance.security;
  return !security.join.empty() || security.has_own() ||
         wire::KeepsCertificate(security, security::Role::kWorker, entrance.name);
}

absl::Status TakeOver(const wire::ClusterEntry& entry, const WorkerEntrance& entrance,
                      Worker::Config& config) {
  if (!entry.files.has_value()) return absl::OkStatus();
  config.security = entry.MakeSecurity();
  if (entrance.name.empty()) {
    config.name = absl::StrCat(entry.identity->name, ".", ProcessSuffix());
  }
  if (!entrance.has_coordinator && !entry.servers.empty()) {
    ASSIGN_OR_RETURN(config.coordinator, net::AddressList::Parse("join", entry.servers));
  }
  config.find_tls_doubts = [files = *entry.files, servers = config.coordinator.ToString()] {
    return wire::FindTlsDoubts(files, servers, kLookAtServer);
  };
  return absl::OkStatus();
}

}  // namespace

std::string DefaultWorkerName() {
  char host[HOST_NAME_MAX + 1] = {};
  if (gethostname(host, sizeof(host)) != 0) host[0] = '\0';
  const absl::string_view text = host;
  const std::string label = NearestName(text.substr(0, text.find('.')), kMaxHostBytes);
  return absl::StrCat(label.empty() ? "worker" : label, "-", ProcessSuffix());
}

uint64_t RandomInstanceId() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

absl::Status CheckMayEnter(const WorkerEntrance& entrance, absl::string_view flag) {
  RETURN_IF_ERROR(wire::CheckGrpcEnvironment());
  const security::SecurityFlags& security = entrance.security;
  if (HasCredentials(entrance)) return absl::OkStatus();
  const absl::Status may_be_plain = wire::CheckMayBePlain(flag, entrance.coordinator, security);
  const std::string leftovers =
      wire::LeftoversText(security, security::Role::kWorker, entrance.name);
  if (may_be_plain.ok() || leftovers.empty()) return may_be_plain;
  return absl::InvalidArgumentError(absl::StrCat(
      may_be_plain.message(), ". None of the saved certificates can be used: ", leftovers));
}

WorkerCredentials::WorkerCredentials(const wire::ClusterEntry& entry) : entry_(entry) {
  if (entry_.is_renewable) renewer_.emplace(*entry_.files, entry_.servers, entry_.enrol_again);
}

absl::StatusOr<std::unique_ptr<WorkerCredentials>> WorkerCredentials::Await(
    const WorkerEntrance& entrance, const std::function<bool()>& is_interrupted,
    Worker::Config* config) {
  if (!entrance.has_coordinator && !HasCredentials(entrance)) {
    logging::LogInfo(
        "neither --coordinator nor a join string (--join, $LODESTAR_JOIN) is given, so the worker "
        "looks for the job at {}",
        entrance.coordinator);
  }
  ASSIGN_OR_RETURN(const wire::ClusterEntry entry,
                   wire::AwaitEntry(entrance.security, {security::Role::kWorker}, entrance.name,
                                    entrance.coordinator, is_interrupted, config->life.connect));
  RETURN_IF_ERROR(TakeOver(entry, entrance, *config));
  return std::unique_ptr<WorkerCredentials>(new WorkerCredentials(entry));
}

void WorkerCredentials::OnEnd(const absl::Status& outcome) const {
  if (!absl::IsUnauthenticated(outcome) || !entry_.is_renewable) return;
  wire::ThrowAwayCertificate(*entry_.files, outcome.message());
  logging::LogInfo(
      "the certificate in {} is not used any more, and the next start joins again with --join. If "
      "this worker was revoked, make a new join string with `psctl token create --name={}`, and "
      "give it to --join",
      entry_.files->certificate, entry_.identity->name);
}

}  // namespace lodestar::worker
