// SPDX-License-Identifier: Apache-2.0

// A comparison for our transports: pushes and pulls over plain sockets, with all the work that a
// server must do, a thread for each connection, and without gRPC. It estimates what an endpoint of
// our own could reach; it is not an upper bound.
//
// A push has checksums on both sides, the check for NaN, the sum over all clients and the update
// (SGD). A pull has checksums on both sides, which the server computes once for all clients. The
// data under way fit into the caches, and are written past the caches to their destination.
// Duplicates, rounds, flow control, encryption and failures are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "tests/bench/data_path/loopback_sockets.h"

namespace lodestar {

// Message that begins a transfer.
struct CheckedTcpRequest {
  int32_t num_clients;  // number of clients that make the same transfer
  int32_t is_push;
  int64_t min_version;  // minimum version for a pull
};

// Holds num_elements weights, which are zeros at first. They are allocated when the first client
// connects.
class CheckedTcpServer {
 public:
  // Listens on a free loopback port. Aborts if the machine has no sockets.
  CheckedTcpServer(size_t num_elements, int num_connections);
  ~CheckedTcpServer();  // all clients must be gone

  int port() const { return listener_.port; }

 private:
  struct Checksum {
    uint32_t value = 0;
    int num_uses = 0;  // 0 means that the checksum must be computed again
  };
  struct Weights {
    std::vector<float> elements;
    std::vector<Checksum> checksums;  // one for each chunk

    // Returns the checksum, which is computed once per transfer of all clients.
    uint32_t ChecksumFor(int num_clients, size_t chunk, absl::Span<const float> of);
  };
  // Part of the weights that is summed and updated at a time.
  struct Bucket {
    size_t num_elements = 0;
    absl::Mutex mutex;
    // While another thread holds one of these, its elements do not change.
    std::shared_ptr<Weights> weights ABSL_GUARDED_BY(mutex);
    std::shared_ptr<Weights> spare ABSL_GUARDED_BY(mutex);
    std::vector<float> sum ABSL_GUARDED_BY(mutex);
    int num_contributions ABSL_GUARDED_BY(mutex) = 0;
    int64_t version ABSL_GUARDED_BY(mutex) = 0;
  };

  void MakeParts();
  void Accept();
  void Serve(int socket);
  // Both return false if the connection is closed. `contribution` is memory for the gradient;
  // afterwards it may be another vector.
  static bool ReceiveGradient(int socket, int num_clients, std::vector<float>& contribution,
                              Bucket& bucket);
  static bool SendWeights(int socket, int num_clients, int64_t min_version, Bucket& bucket);
  static void Update(Bucket& bucket, int num_clients, absl::Span<const float> last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(bucket.mutex);
  static std::shared_ptr<Weights> NewWeights(size_t num_elements);

  const size_t num_elements_;
  const int num_connections_;
  std::vector<std::vector<std::unique_ptr<Bucket>>> parts_;  // indexed by connection of a client
  const Listener listener_;
  std::vector<std::thread> serving_;
  std::thread accepting_;
};

class CheckedTcpClient {
 public:
  CheckedTcpClient(int port, int num_connections);
  ~CheckedTcpClient();

  // Pushes `gradient`, which has the server's num_elements. Returns once all of it is part of the
  // sum. The sum updates the weights once `num_clients` clients have pushed.
  void Push(absl::Span<const float> gradient, int num_clients);
  // Pulls the weights after at least `min_version` updates. `num_clients` clients must pull the
  // same.
  void Pull(absl::Span<float> weights, int num_clients, int64_t min_version);

 private:
  // Calls transfer() for all connections at the same time.
  void Transfer(const CheckedTcpRequest& request,
                absl::FunctionRef<bool(int connection, size_t part, size_t num_parts)> transfer);

  std::vector<int> sockets_;
};

}  // namespace lodestar
