// The floor under every transport of ours: pushes and pulls with all that a server must do with
// them, over plain sockets with a thread for each connection, and without gRPC.
//
// A push: checksums on both sides, the look for NaN, the sum of all clients and the update (SGD); a
// pull: checksums, which the server makes once for each version. Bytes arrive where they stay, so
// nothing is copied but by the kernel. Left out are duplicates, rounds, flow control, encryption
// and all that fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "tests/bench/data_path/loopback_sockets.h"

namespace lodestar {

// Owns weights of num_elements, from the first client on; they are zeros at first.
class CheckedTcpServer {
 public:
  // Listens on a free loopback port. Aborts if the machine has no sockets.
  CheckedTcpServer(size_t num_elements, int num_connections);
  ~CheckedTcpServer();  // the clients are gone

  int port() const { return listener_.port; }

 private:
  struct Weights {
    std::vector<float> elements;
    std::vector<uint32_t> checksums;  // of chunks, as far as they have been made
  };
  // The unit of sums and updates.
  struct Bucket {
    size_t num_elements = 0;
    absl::Mutex mutex;
    std::shared_ptr<Weights> weights ABSL_GUARDED_BY(mutex);
    std::shared_ptr<Weights> spare ABSL_GUARDED_BY(mutex);  // may still be sent
    std::vector<float> sum ABSL_GUARDED_BY(mutex);
    int num_contributions ABSL_GUARDED_BY(mutex) = 0;
  };

  void MakeParts();
  void Accept();
  void Serve(int socket);
  bool ReceivePush(int socket, absl::Span<const std::unique_ptr<Bucket>> buckets, int num_clients);
  static bool SendWeights(int socket, Bucket& bucket);
  static void AddTo(Bucket& bucket, std::vector<float>& contribution, int num_clients);

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

  // Returns when the sum of so many clients' gradients has updated the weights. All have the
  // server's num_elements.
  void Push(absl::Span<const float> gradient, int num_clients);
  void Pull(absl::Span<float> weights);

 private:
  std::vector<int> sockets_;
};

}  // namespace lodestar
