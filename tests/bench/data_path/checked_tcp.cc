// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/data_path/checked_tcp.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/crc32c/crc32c.h"
#include "common/params/bucket_plan.h"
#include "common/runtime/check.h"
#include "kernels/operation_arguments.h"
#include "kernels/vectors/optimizer_step.h"
#include "kernels/vectors/reduce.h"
#include "proto/bulk_options.h"

namespace lodestar {
namespace {

constexpr size_t kChunkElements = wire::kChunkBytes / sizeof(float);
// Elements received at a time, into memory that stays in the first-level cache.
constexpr size_t kReadElements = (32 << 10) / sizeof(float);
// Small enough that the data under way stay in the caches. With half the size, pushes take several
// times as long.
constexpr int kSendBufferBytes = 64 << 10;
constexpr size_t kBucketElements = params::kDefaultBucketBytes / sizeof(float);
constexpr double kLearningRate = 0.5;

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
template <typename Value>
absl::Span<const char> BytesOfValue(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

bool SendChunk(int socket, absl::Span<const float> elements, uint32_t checksum) {
  return SendBoth(socket, BytesOfValue(checksum), BytesOf(elements));
}

// Receives a chunk, and gives each part to `look` once it has arrived. Returns false if the
// connection is closed.
bool ReceiveChunk(int socket, absl::Span<float> elements,
                  absl::FunctionRef<void(absl::Span<const float>)> look) {
  uint32_t sent_checksum = 0;
  if (!ReceiveAll(socket, BytesOfValue(sent_checksum))) return false;
  uint32_t checksum = 0;
  float space[kReadElements];
  for (size_t begin = 0; begin < elements.size(); begin += kReadElements) {
    const absl::Span<float> part = elements.subspan(begin, kReadElements);
    const absl::Span<float> received(space, part.size());
    if (!ReceiveAll(socket, MutableBytesOf(received))) return false;
    checksum = crc32c::Crc32cCopy(part.data(), received.data(), part.size() * sizeof(float),
                                  checksum, crc32c::CopyTo::kMemory);
    look(received);
  }
  LODESTAR_CHECK(checksum == sent_checksum) << checksum << " " << sent_checksum;
  return true;
}

// Calls take() for each chunk that one connection carries, until take() returns false.
template <typename Element, typename Take>
bool ForEachChunk(absl::Span<Element> elements, size_t part, size_t num_parts, Take take) {
  const size_t size = elements.size() / num_parts;
  const absl::Span<Element> of_part = elements.subspan(part * size, size);
  for (size_t bucket = 0; bucket < size; bucket += kBucketElements) {
    const absl::Span<Element> of_bucket = of_part.subspan(bucket, kBucketElements);
    for (size_t begin = 0; begin < of_bucket.size(); begin += kChunkElements) {
      if (!take(of_bucket.subspan(begin, kChunkElements))) return false;
    }
  }
  return true;
}

void CheckFinite(absl::Span<const float> elements) {
  LODESTAR_CHECK(vectors::AllBelow(elements.data(), std::numeric_limits<float>::infinity(),
                                   static_cast<int64_t>(elements.size())));
}

// Computes weights_out = weights_in - rate * (sum + last) * factor, part by part.
void UpdateWithLast(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                    absl::Span<const float> sum, absl::Span<const float> last, float factor) {
  constexpr size_t kPartElements = 16 << 10;
  constexpr kernels::MomentumStep kStep = {
      .learning_rate = kLearningRate, .momentum = 0.0, .weight_decay = 0.0};
  float space[kPartElements];
  for (size_t begin = 0; begin < last.size(); begin += kPartElements) {
    const absl::Span<const float> of_last = last.subspan(begin, kPartElements);
    const auto size = static_cast<int64_t>(of_last.size());
    vectors::AccumulateScaled(space, of_last.data(), factor, size, kernels::Accumulate::kSet);
    if (!sum.empty())
      vectors::AccumulateScaled(space, sum.data() + begin, factor, size, kernels::Accumulate::kAdd);
    LODESTAR_CHECK(vectors::SgdMomentumStep(weights_out.subspan(begin, of_last.size()),
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
      bucket->weights = NewWeights(bucket->num_elements);
      bucket->spare = NewWeights(bucket->num_elements);
      buckets.push_back(std::move(bucket));
    }
  }
}

void CheckedTcpServer::Accept() {
  for (int socket = 0; (socket = lodestar::Accept(listener_, kSendBufferBytes)) >= 0;) {
    if (parts_.empty()) MakeParts();
    serving_.emplace_back([this, socket] { Serve(socket); });
  }
}

void CheckedTcpServer::Serve(int socket) {
  int32_t part = 0;
  CheckedTcpRequest request;
  std::vector<float> contribution(kBucketElements);
  bool is_open = ReceiveAll(socket, BytesOfValue(part));
  while (is_open && ReceiveAll(socket, BytesOfValue(request))) {
    for (const std::unique_ptr<Bucket>& bucket : parts_[part]) {
      is_open =
          is_open && (request.is_push != 0
                          ? ReceiveGradient(socket, request.num_clients, contribution, *bucket)
                          : SendWeights(socket, request.num_clients, request.min_version, *bucket));
    }
    const char acknowledgement = 1;
    is_open = is_open && SendAll(socket, {&acknowledgement, 1});
  }
  close(socket);
}

bool CheckedTcpServer::ReceiveGradient(int socket, int num_clients,
                                       std::vector<float>& contribution, Bucket& bucket) {
  contribution.resize(bucket.num_elements);
  for (size_t begin = 0; begin < contribution.size(); begin += kChunkElements) {
    if (!ReceiveChunk(socket, absl::MakeSpan(contribution).subspan(begin, kChunkElements),
                      CheckFinite)) {
      return false;
    }
  }
  absl::MutexLock lock(&bucket.mutex);
  ++bucket.num_contributions;
  if (bucket.num_contributions == num_clients) {
    Update(bucket, num_clients, contribution);
  } else if (bucket.num_contributions == 1) {
    bucket.sum.swap(contribution);
  } else {
    vectors::AccumulateScaled(bucket.sum.data(), contribution.data(), 1.0f,
                              static_cast<int64_t>(contribution.size()), kernels::Accumulate::kAdd);
  }
  return true;
}

void CheckedTcpServer::Update(Bucket& bucket, int num_clients, absl::Span<const float> last) {
  // Another connection may still send the spare weights.
  if (bucket.spare.use_count() > 1) bucket.spare = NewWeights(bucket.num_elements);
  UpdateWithLast(absl::MakeSpan(bucket.spare->elements), bucket.weights->elements,
                 num_clients == 1 ? absl::Span<const float>() : bucket.sum, last,
                 1.0f / static_cast<float>(num_clients));
  bucket.spare->checksums.clear();
  bucket.weights.swap(bucket.spare);
  bucket.num_contributions = 0;
  ++bucket.version;
}

bool CheckedTcpServer::SendWeights(int socket, int num_clients, int64_t min_version,
                                   Bucket& bucket) {
  std::shared_ptr<Weights> weights;
  {
    const auto has_come = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(bucket.mutex) {
      return bucket.version >= min_version;
    };
    absl::MutexLock lock(&bucket.mutex, absl::Condition(&has_come));
    weights = bucket.weights;
  }
  bool is_open = true;
  for (size_t begin = 0; begin < bucket.num_elements; begin += kChunkElements) {
    const auto elements = absl::MakeConstSpan(weights->elements).subspan(begin, kChunkElements);
    uint32_t checksum = 0;
    {
      absl::MutexLock lock(&bucket.mutex);
      checksum = weights->ChecksumFor(num_clients, begin / kChunkElements, elements);
    }
    is_open = is_open && SendChunk(socket, elements, checksum);
  }
  // The weights are released under the lock, so that the thread that updates knows that they have
  // been read.
  absl::MutexLock lock(&bucket.mutex);
  weights.reset();
  return is_open;
}

uint32_t CheckedTcpServer::Weights::ChecksumFor(int num_clients, size_t chunk,
                                                absl::Span<const float> of) {
  if (chunk >= checksums.size()) checksums.resize(chunk + 1);
  Checksum& checksum = checksums[chunk];
  if (checksum.num_uses == 0) checksum.value = crc32c::Crc32c(of.data(), of.size() * sizeof(float));
  checksum.num_uses = (checksum.num_uses + 1) % num_clients;
  return checksum.value;
}

std::shared_ptr<CheckedTcpServer::Weights> CheckedTcpServer::NewWeights(size_t num_elements) {
  auto weights = std::make_shared<Weights>();
  weights->elements.assign(num_elements, 0.0f);
  return weights;
}

CheckedTcpClient::CheckedTcpClient(int port, int num_connections) {
  for (int32_t part = 0; part < num_connections; ++part) {
    sockets_.push_back(ConnectToLoopback(port, kSendBufferBytes));
    LODESTAR_CHECK(SendAll(sockets_.back(), BytesOfValue(part))) << std::strerror(errno);
  }
}

CheckedTcpClient::~CheckedTcpClient() {
  for (const int connection : sockets_) close(connection);
}

void CheckedTcpClient::Transfer(
    const CheckedTcpRequest& request,
    absl::FunctionRef<bool(int connection, size_t part, size_t num_parts)> transfer) {
  std::vector<std::thread> threads;
  for (size_t part = 0; part < sockets_.size(); ++part) {
    threads.emplace_back([&, part, connection = sockets_[part]] {
      char acknowledgement = 0;
      LODESTAR_CHECK(SendAll(connection, BytesOfValue(request)) &&
                     transfer(connection, part, sockets_.size()) &&
                     ReceiveAll(connection, BytesOfValue(acknowledgement)))
          << std::strerror(errno);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void CheckedTcpClient::Push(absl::Span<const float> gradient, int num_clients) {
  const CheckedTcpRequest request = {.num_clients = num_clients, .is_push = 1, .min_version = 0};
  Transfer(request, [&](int connection, size_t part, size_t num_parts) {
    return ForEachChunk(gradient, part, num_parts, [&](absl::Span<const float> chunk) {
      return SendChunk(connection, chunk,
                       crc32c::Crc32c(chunk.data(), chunk.size() * sizeof(float)));
    });
  });
}

void CheckedTcpClient::Pull(absl::Span<float> weights, int num_clients, int64_t min_version) {
  const CheckedTcpRequest request = {
      .num_clients = num_clients, .is_push = 0, .min_version = min_version};
  Transfer(request, [&](int connection, size_t part, size_t num_parts) {
    return ForEachChunk(weights, part, num_parts, [&](absl::Span<float> chunk) {
      return ReceiveChunk(connection, chunk, [](absl::Span<const float>) {});
    });
  });
}

}  // namespace lodestar
