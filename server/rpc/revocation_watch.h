// SPDX-License-Identifier: Apache-2.0

// RevocationWatch knows which identities of a cluster were revoked, for servers other than the
// authority's. It asks the coordinator every few seconds, at any address that the coordinator may
// have moved to. While the coordinator does not answer, its last answer counts.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/security/identity.h"
#include "proto/transport_security.h"

namespace lodestar::rpc {

// The class is thread-safe. It has a thread of its own.
class RevocationWatch {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(5);

  // `servers` is HOST:PORT[,HOST:PORT...], the addresses at which the coordinator may be.
  RevocationWatch(wire::TransportSecurity security, const std::string& servers,
                  absl::Duration interval = kInterval);
  ~RevocationWatch();

  // Checks that the identity is not revoked. Errors: Unauthenticated, with the time and the reason
  // of the revocation.
  absl::Status CheckNotRevoked(const security::Identity& identity) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AskAt(const std::string& server) ABSL_LOCKS_EXCLUDED(mutex_);

  const wire::TransportSecurity security_;
  const std::vector<std::string> servers_;
  const absl::Duration interval_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::string> revoked_ ABSL_GUARDED_BY(mutex_);  // id to reason
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the call under way
  std::thread thread_;
};

}  // namespace lodestar::rpc
