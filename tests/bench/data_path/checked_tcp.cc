#include "tests/bench/data_path/checked_tcp.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/bucket_plan.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "kernels/operation_arguments.h"
#include "kernels/optimizer_step.h"
#include "kernels/reduce.h"
#include "proto/bulk_options.h"

namespace lodestar {
namespace {

constexpr size_t kChunkElements = kChunkBytes / sizeof(float);
// Looked at while they are in the second-level cache.
constexpr size_t kReadElements = (256 << 10) / sizeof(float);
constexpr size_t kBucketElements = kDefaultBucketBytes / sizeof(float);
constexpr double kLearningRate = 0.5;

// Begins a transfer.
struct Request {
  int32_t num_clients;  // of a push; 0: a pull
};

absl::Span<const char> BytesOf(absl::Span<const float> elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)};
}

absl::Span<char> MutableBytesOf(absl::Span<float> elements) {
  return {reinterpret_cast<char*>(elements.data()), elements.size() * sizeof(float)};
}

bool ReceiveAll(int socket, absl::Span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t received = recv(socket, bytes.data(), bytes.size(), MSG_WAITALL);
    if (received <= 0) return false;
    bytes.remove_prefix(received);
  }
  return true;
}

template <typename Value>
absl::Span<char> BytesOfValue(Value& value) {
  return {reinterpret_cast<char*>(&value), sizeof(value)};
}

bool SendChunk(int socket, absl::Span<const float> elements, uint32_t checksum) {
  return SendBoth(socket, BytesOfValue(checksum), BytesOf(elements));
}

// `look` is given each part once it has arrived. False: the connection is closed.
bool ReceiveChunk(int socket, absl::Span<float> elements,
                  absl::FunctionRef<void(absl::Span<const float>)> look) {
  uint32_t sent_checksum = 0;
  if (!ReceiveAll(socket, BytesOfValue(sent_checksum))) return false;
  uint32_t checksum = 0;
  for (size_t begin = 0; begin < elements.size(); begin += kReadElements) {
    const absl::Span<float> part = elements.subspan(begin, kReadElements);
    if (!ReceiveAll(socket, MutableBytesOf(part))) return false;
    checksum = Crc32c(part.data(), part.size() * sizeof(float), checksum);
    look(part);
  }
  LODESTAR_CHECK(checksum == sent_checksum) << checksum << " " << sent_checksum;
  return true;
}

void CheckFinite(absl::Span<const float> elements) {
  LODESTAR_CHECK(AllBelow(elements.data(), std::numeric_limits<float>::infinity(),
                          static_cast<int64_t>(elements.size())));
}

// weights_out = weights_in - rate * (sum + contribution) * factor, part by part.
void UpdateWithLast(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                    absl::Span<const float> sum, absl::Span<const float> last, float factor) {
  constexpr size_t kPartElements = 16 << 10;
  constexpr MomentumStep kStep = {
      .learning_rate = kLearningRate, .momentum = 0.0, .weight_decay = 0.0};
  float space[kPartElements];
  for (size_t begin = 0; begin < last.size(); begin += kPartElements) {
    const absl::Span<const float> of_last = last.subspan(begin, kPartElements);
    const auto size = static_cast<int64_t>(of_last.size());
    AccumulateScaled(space, of_last.data(), factor, size, Accumulate::kSet);
    if (!sum.empty()) AccumulateScaled(space, sum.data() + begin, factor, size, Accumulate::kAdd);
    LODESTAR_CHECK(SgdMomentumStep(weights_out.subspan(begin, of_last.size()),
                                   weights_in.subspan(begin, of_last.size()), {},
                                   {space, of_last.size()}, kStep));
  }
}

}  // namespace

CheckedTcpServer::CheckedTcpServer(size_t num_elements, int num_connections)
    : num_elements_(num_elements),
      num_connections_(num_connections),
      listener_(ListenOnLoopback()),
      accepting_([this] { Accept(); }) {}

CheckedTcpServer::~CheckedTcpServer() {
  shutdown(listener_.socket, SHUT_RDWR);
  accepting_.join();
  for (std::thread& thread : serving_) thread.join();
  close(listener_.socket);
}

void CheckedTcpServer::MakeParts() {
  const size_t part = num_elements_ / num_connections_;
  parts_.resize(num_connections_);
  for (auto& buckets : parts_) {
    for (size_t begin = 0; begin < part; begin += kBucketElements) {
      auto bucket = std::make_unique<Bucket>();
      bucket->num_elements = std::min(kBucketElements, part - begin);
      absl::MutexLock lock(&bucket->mutex);
      for (std::shared_ptr<Weights>* weights : {&bucket->weights, &bucket->spare}) {
        *weights = std::make_shared<Weights>();
        (*weights)->elements.assign(bucket->num_elements, 0.0f);
      }
      buckets.push_back(std::move(bucket));
    }
  }
}

void CheckedTcpServer::Accept() {
  for (int socket = 0; (socket = accept(listener_.socket, nullptr, nullptr)) >= 0;) {
    if (parts_.empty()) MakeParts();
    serving_.emplace_back([this, socket] { Serve(socket); });
  }
}

void CheckedTcpServer::Serve(int socket) {
  int32_t part = 0;
  Request request;
  if (ReceiveAll(socket, BytesOfValue(part))) {
    bool is_open = true;
    while (is_open && ReceiveAll(socket, BytesOfValue(request))) {
      if (request.num_clients > 0) {
        is_open = ReceivePush(socket, parts_[part], request.num_clients);
        continue;
      }
      for (const std::unique_ptr<Bucket>& bucket : parts_[part]) {
        is_open = is_open && SendWeights(socket, *bucket);
      }
    }
  }
  close(socket);
}

bool CheckedTcpServer::ReceivePush(int socket, absl::Span<const std::unique_ptr<Bucket>> buckets,
                                   int num_clients) {
  std::vector<float> contribution;
  for (const std::unique_ptr<Bucket>& bucket : buckets) {
    contribution.resize(bucket->num_elements);
    for (size_t begin = 0; begin < contribution.size(); begin += kChunkElements) {
      if (!ReceiveChunk(socket, absl::MakeSpan(contribution).subspan(begin, kChunkElements),
                        CheckFinite)) {
        return false;
      }
    }
    AddTo(*bucket, contribution, num_clients);
  }
  char acknowledgement = 1;
  return SendAll(socket, BytesOfValue(acknowledgement));
}

void CheckedTcpServer::AddTo(Bucket& bucket, std::vector<float>& contribution, int num_clients) {
  absl::MutexLock lock(&bucket.mutex);
  const float factor = 1.0f / static_cast<float>(num_clients);
  ++bucket.num_contributions;
  if (bucket.num_contributions < num_clients) {
    if (bucket.num_contributions == 1) return bucket.sum.swap(contribution);
    return AccumulateScaled(bucket.sum.data(), contribution.data(), 1.0f,
                            static_cast<int64_t>(contribution.size()), Accumulate::kAdd);
  }
  if (bucket.spare.use_count() > 1) bucket.spare = std::make_shared<Weights>(*bucket.weights);
  UpdateWithLast(absl::MakeSpan(bucket.spare->elements), bucket.weights->elements,
                 num_clients == 1 ? absl::Span<const float>() : bucket.sum, contribution, factor);
  bucket.spare->checksums.clear();
  bucket.weights.swap(bucket.spare);
  bucket.num_contributions = 0;
}

bool CheckedTcpServer::SendWeights(int socket, Bucket& bucket) {
  std::shared_ptr<Weights> weights;
  {
    absl::MutexLock lock(&bucket.mutex);
    weights = bucket.weights;
  }
  for (size_t begin = 0; begin < bucket.num_elements; begin += kChunkElements) {
    const auto elements = absl::MakeConstSpan(weights->elements).subspan(begin, kChunkElements);
    uint32_t checksum = 0;
    {
      absl::MutexLock lock(&bucket.mutex);
      const size_t chunk = begin / kChunkElements;
      if (chunk == weights->checksums.size()) {
        weights->checksums.push_back(Crc32c(elements.data(), elements.size() * sizeof(float)));
      }
      checksum = weights->checksums[chunk];
    }
    if (!SendChunk(socket, elements, checksum)) return false;
  }
  return true;
}

CheckedTcpClient::CheckedTcpClient(int port, int num_connections) {
  for (int32_t part = 0; part < num_connections; ++part) {
    sockets_.push_back(ConnectToLoopback(port));
    LODESTAR_CHECK(SendAll(sockets_.back(), BytesOfValue(part))) << std::strerror(errno);
  }
}

CheckedTcpClient::~CheckedTcpClient() {
  for (const int connection : sockets_) close(connection);
}

void CheckedTcpClient::Push(absl::Span<const float> gradient, int num_clients) {
  const size_t part = gradient.size() / sockets_.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    threads.emplace_back([=, connection = sockets_[i], out = gradient.subspan(i * part, part)] {
      Request request{num_clients};
      bool is_sent = SendAll(connection, BytesOfValue(request));
      for (size_t bucket = 0; bucket < out.size(); bucket += kBucketElements) {
        const auto of_bucket = out.subspan(bucket, kBucketElements);
        for (size_t begin = 0; begin < of_bucket.size(); begin += kChunkElements) {
          const auto chunk = of_bucket.subspan(begin, kChunkElements);
          is_sent = is_sent && SendChunk(connection, chunk,
                                         Crc32c(chunk.data(), chunk.size() * sizeof(float)));
        }
      }
      char acknowledgement = 0;
      LODESTAR_CHECK(is_sent && ReceiveAll(connection, BytesOfValue(acknowledgement)))
          << std::strerror(errno);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void CheckedTcpClient::Pull(absl::Span<float> weights) {
  const size_t part = weights.size() / sockets_.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    threads.emplace_back([=, connection = sockets_[i], in = weights.subspan(i * part, part)] {
      Request request{0};
      bool has_arrived = SendAll(connection, BytesOfValue(request));
      for (size_t bucket = 0; bucket < in.size(); bucket += kBucketElements) {
        const auto of_bucket = in.subspan(bucket, kBucketElements);
        for (size_t begin = 0; begin < of_bucket.size(); begin += kChunkElements) {
          has_arrived =
              has_arrived && ReceiveChunk(connection, of_bucket.subspan(begin, kChunkElements),
                                          [](absl::Span<const float>) {});
        }
      }
      LODESTAR_CHECK(has_arrived) << std::strerror(errno);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lodestar
