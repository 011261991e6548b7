#include "server/coordinator/admission.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/robust_mean.h"
#include "common/same_tensors.h"
#include "server/membership/membership_table.h"

namespace lodestar {

absl::Status CheckEncodings(const JobSpec& job, const std::vector<Encoding::Kind>& known) {
  for (const auto& [encoding, flag] : {std::pair(job.push_encoding, "push_encoding"),
                                       std::pair(job.pull_encoding, "pull_encoding")}) {
    if (std::find(known.begin(), known.end(), encoding.kind()) != known.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("this job has --", flag, "=", EncodingText(encoding), ", this client knows ",
                     absl::StrJoin(known, ", ",
                                   [](std::string* out, Encoding::Kind one) {
                                     absl::StrAppend(out, EncodingKindName(one));
                                   }),
                     "; use another client, or start the job with --", flag, "=",
                     EncodingKindName(known.front())));
  }
  return absl::OkStatus();
}

absl::Status CheckOffered(const ClusterState& state, const RegisterCall& call) {
  if (call.adopts_order) {
    return CheckSameTensors(*state.layout, "the job", *call.layout, "this client");
  }
  const absl::Status same = CheckSameLayout(*state.layout, "the job", *call.layout, "this client");
  return same.ok() ? same : absl::InvalidArgumentError(same.message());
}

absl::Status CheckRoom(const ClusterState& state, absl::string_view name) {
  const RobustMean& mean = state.config.job.robust_mean;
  if (!mean.is_robust()) return absl::OkStatus();
  const std::vector<const WorkerRecord*> members = state.membership.Members();
  const auto others =
      std::count_if(members.begin(), members.end(),
                    [name](const WorkerRecord* member) { return member->name != name; });
  if (others < kMaxRobustContributions) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the job has ", others, " workers, and --robust_mean=", RobustMeanText(mean), " is for ",
      kMaxRobustContributions, ": this one is let in when another has left"));
}

absl::Status CheckLayoutHash(const ClusterState& state, absl::string_view layout_hash) {
  if (layout_hash == state.layout->hash()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("layout hash of this worker is ", layout_hash,
                                                    ", the job's is ", state.layout->hash(),
                                                    "; build the model from the job's settings"));
}

absl::Status CheckMayClaimSupply(const ClusterState& state, const RegisterCall& call,
                                 absl::Time now) {
  const WorkerRecord* record = state.membership.FindByName(call.name);
  if (record == nullptr) return absl::OkStatus();
  const auto desk = state.desks.find(record->id);
  if (desk == state.desks.end() || now >= desk->second.rests_until()) return absl::OkStatus();
  return absl::UnavailableError(
      "not ready: this client was to supply the initial weights, and held up the others: one of "
      "them may; the same call again");
}

}  // namespace lodestar
