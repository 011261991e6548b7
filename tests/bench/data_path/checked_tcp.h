// What our transports are measured beside: pushes and pulls with all that a server must do with
// them, over plain sockets with a thread for each connection, and without gRPC. An estimate of what
// an endpoint of our own could reach, and no bound.
//
// A push: checksums on both sides, the look for NaN, the sum of all clients and the update (SGD); a
// pull: checksums on both sides, which the server makes once for all clients. What is under way is
// little enough for the caches, and arrives past them where it stays. Left out are duplicates,
// rounds, flow control, encryption and all that fails.
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

// Begins a transfer.
struct CheckedTcpRequest {
  int32_t num_clients;  // that do the same
  int32_t is_push;
  int64_t min_version;  // of a pull
};

// Owns weights of num_elements, from the first client on; they are zeros at first.
class CheckedTcpServer {
 public:
  // Listens on a free loopback port. Aborts if the machine has no sockets.
  CheckedTcpServer(size_t num_elements, int num_connections);
  ~CheckedTcpServer();  // the clients are gone

  int port() const { return listener_.port; }

 private:
  struct Checksum {
    uint32_t value = 0;
    int num_uses = 0;  // 0 means that it must be made again
  };
  struct Weights {
    std::vector<float> elements;
    std::vector<Checksum> checksums;  // of chunks

    // Made once for each transfer of all clients.
    uint32_t ChecksumFor(int num_clients, size_t chunk, absl::Span<const float> of);
  };
  // The unit of sums and updates.
  struct Bucket {
    size_t num_elements = 0;
    absl::Mutex mutex;
    // The elements of neither change while another thread holds it.
    std::shared_ptr<Weights> weights ABSL_GUARDED_BY(mutex);
    std::shared_ptr<Weights> spare ABSL_GUARDED_BY(mutex);
    std::vector<float> sum ABSL_GUARDED_BY(mutex);
    int num_contributions ABSL_GUARDED_BY(mutex) = 0;
    int64_t version ABSL_GUARDED_BY(mutex) = 0;
  };

  void MakeParts();
  void Accept();
  void Serve(int socket);
  // Each returns false if the connection is closed. `contribution` is space, and another
  // afterwards.
  static bool ReceiveGradient(int socket, int num_clients, std::vector<float>& contribution,
                              Bucket& bucket);
  static bool SendWeights(int socket, int num_clients, int64_t min_version, Bucket& bucket);
  static void Update(Bucket& bucket, int num_clients, absl::Span<const float> last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(bucket.mutex);
  static std::shared_ptr<Weights> NewWeights(size_t num_elements);

  const size_t num_elements_;
  const int num_connections_;
  std::vector<std::vector<std::unique_ptr<Bucket>>> parts_;  // by connection of a client
  const Listener listener_;
  std::vector<std::thread> serving_;
  std::thread accepting_;
};

class CheckedTcpClient {
 public:
  CheckedTcpClient(int port, int num_connections);
  ~CheckedTcpClient();

  // All have the server's num_elements. Returns when all of the gradient is part of the sum, which
  // updates the weights once so many clients have done the same.
  void Push(absl::Span<const float> gradient, int num_clients);
  // The weights after so many updates, or more; so many clients do the same.
  void Pull(absl::Span<float> weights, int num_clients, int64_t min_version);

 private:
  // Calls transfer() for each connection, at once.
  void Transfer(const CheckedTcpRequest& request,
                absl::FunctionRef<bool(int connection, size_t part, size_t num_parts)> transfer);

  std::vector<int> sockets_;
};

}  // namespace lodestar
