// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/cluster_watch.h"

#include <optional>
#include <utility>

#include "common/runtime/remedy.h"

namespace lodestar::psctl {
namespace {

constexpr absl::Duration kPause = absl::Seconds(1);

}  // namespace

absl::Status WatchAcrossRestarts(const ClusterWatch& watch) {
  bool has_answered = false;
  bool is_job_over = false;
  bool was_turned_away = false;
  std::optional<absl::Time> last_answer;
  while (true) {
    const absl::Status ended = watch.stream([&](const v1::ClusterStatus& status) {
      has_answered = true;
      was_turned_away = false;
      is_job_over =
          status.state() == "done" || status.state() == "failed" || status.state() == "diverged";
      last_answer = watch.clock->Now();
      return watch.show(status);
    });
    if (ended.ok() || !has_answered || RemedyFor(ended) == Remedy::kGiveUp) return ended;
    if (is_job_over) return absl::OkStatus();
    // One Unauthenticated error may come from a call that was damaged on the way. If the next
    // stream also ends with it, the server refuses this client.
    if (absl::IsUnauthenticated(ended) && std::exchange(was_turned_away, true)) return ended;
    if (!watch.away(ended.message(), watch.clock->Now() - *last_answer)) return absl::OkStatus();
    watch.clock->Sleep(kPause);
  }
}

}  // namespace lodestar::psctl
