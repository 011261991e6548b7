#include "server/sync/sync_policy_factory.h"

#include "common/check.h"
#include "server/sync/asynchronous.h"
#include "server/sync/bulk_synchronous.h"
#include "server/sync/local_sgd.h"

namespace lodestar {

std::unique_ptr<const SyncPolicy> MakeSyncPolicy(const JobSpec& job) {
  switch (job.mode) {
    case Mode::kSync:
      return std::make_unique<BulkSynchronous>(BulkSynchronous::Config{.quorum = job.quorum});
    case Mode::kAsync:
      if (job.max_rounds_ahead == 0) {
        return std::make_unique<BulkSynchronous>(BulkSynchronous::Config{});
      }
      return std::make_unique<Asynchronous>(
          Asynchronous::Config{.max_rounds_ahead = job.max_rounds_ahead});
    case Mode::kLocalSgd:
      return std::make_unique<LocalSgd>();
  }
  LODESTAR_CHECK(false) << "mode " << static_cast<int>(job.mode);
  return nullptr;
}

}  // namespace lodestar
