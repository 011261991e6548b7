// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/state_pull.h"

#include <memory>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "worker/trainer/retry.h"

namespace lodestar::trainer {

absl::StatusOr<std::vector<Version>> PullState(const messages::Registration& registration,
                                               uint32_t state_vector, absl::Span<float> state,
                                               client::ParameterTransport* transport,
                                               Clock* clock) {
  TransferRetry retry(clock);
  while (true) {
    client::PullSpec spec;
    spec.state_vector = state_vector;
    for (const params::Bucket& bucket : registration.buckets()) {
      spec.targets.push_back(
          {bucket.index, state.subspan(bucket.range.begin, bucket.range.size())});
    }
    absl::Mutex mutex;
    std::vector<Version> versions(registration.buckets().size());
    const std::unique_ptr<client::PullSession> session =
        transport->StartPull(std::move(spec), [&](const client::PulledBucket& pulled) {
          absl::MutexLock lock(&mutex);
          versions[pulled.bucket] = pulled.version;
        });
    const absl::Status status = session->Wait();
    if (status.ok()) return versions;
    if (!retry.MayHelp(status)) return status;
    retry.BackOff(status, "pull of the optimizer's state");
  }
}

}  // namespace lodestar::trainer
