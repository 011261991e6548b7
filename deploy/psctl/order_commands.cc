// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/order_commands.h"

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/status_macros.h"

namespace lodestar::psctl {
namespace {

// Makes the call for each name. Returns a line per name: the name followed by `done`, or the error.
absl::StatusOr<std::string> ForEach(const std::vector<std::string>& names,
                                    absl::FunctionRef<absl::Status(const std::string&)> call,
                                    absl::string_view done) {
  std::vector<std::string> lines;
  absl::Status failure;
  for (const std::string& name : names) {
    const absl::Status status = call(name);
    failure.Update(status);
    lines.push_back(status.ok() ? absl::StrCat(name, done) : std::string(status.message()));
  }
  const std::string text = absl::StrJoin(lines, "\n");
  if (!failure.ok()) return absl::Status(failure.code(), text);
  return absl::StrCat(text, "\n");
}

}  // namespace

absl::StatusOr<std::string> PauseJob(ClusterClient& client, const std::string& reason) {
  RETURN_IF_ERROR(client.Pause(reason));
  return absl::StrCat(
      "paused: no new round starts. psctl status shows the rounds that are still open; psctl "
      "resume continues the job\n");
}

absl::StatusOr<std::string> ResumeJob(ClusterClient& client) {
  RETURN_IF_ERROR(client.Resume());
  return std::string("the job continues\n");
}

absl::StatusOr<std::string> SetLearningRate(ClusterClient& client, absl::string_view rate) {
  double learning_rate = 0.0;
  if (!absl::SimpleAtod(rate, &learning_rate)) {
    return absl::InvalidArgumentError(absl::StrCat("'", rate, "' is not a number"));
  }
  RETURN_IF_ERROR(CheckNotTooSmall("the learning rate", rate, learning_rate));
  ASSIGN_OR_RETURN(const v1::SetLearningRateReply reply, client.SetLearningRate(learning_rate));
  return absl::StrFormat(
      "the next round has learning rate %g instead of %g; the later rates of the schedule are "
      "multiplied by %g\n",
      learning_rate, reply.before(), reply.scale());
}

absl::StatusOr<std::string> EvictWorkers(ClusterClient& client,
                                         const std::vector<std::string>& names,
                                         const std::string& reason, bool with_certificate) {
  return ForEach(
      names, [&](const std::string& name) { return client.Evict(name, reason, with_certificate); },
      with_certificate ? " is evicted with all names of its certificate until psctl readmit"
                       : " is evicted until psctl readmit");
}

absl::StatusOr<std::string> ReadmitWorkers(ClusterClient& client,
                                           const std::vector<std::string>& names) {
  return ForEach(
      names, [&](const std::string& name) { return client.Readmit(name); },
      " may join again; start this worker again");
}

}  // namespace lodestar::psctl
