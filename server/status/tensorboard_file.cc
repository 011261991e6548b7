// SPDX-License-Identifier: Apache-2.0

#include "server/status/tensorboard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"

namespace lodestar::status {
namespace {

// Wire types of protocol buffers, which are little-endian like this machine. The fields are those
// of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto. A reader skips
// fields that it does not know.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kEventSessionLog = 7;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimple = 2;
constexpr int kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;
constexpr absl::string_view kVersion = "brain.Event:2";

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendKey(int field, WireType type, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | type, out);
}

template <typename Number>
void AppendRaw(Number value, std::string* out) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->append(bytes, sizeof(value));
}

void AppendBytes(int field, absl::string_view bytes, std::string* out) {
  AppendKey(field, kLengthDelimited, out);
  AppendVarint(bytes.size(), out);
  absl::StrAppend(out, bytes);
}

void AppendInteger(int field, uint64_t value, std::string* out) {
  AppendKey(field, kVarint, out);
  AppendVarint(value, out);
}

// Returns the masked checksum of TFRecord. TFRecord masks checksums, because the CRC of data that
// contains its own CRC is of little use.
uint32_t MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = crc32c::Crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Format: [length: 8 bytes | its checksum: 4 | event | its checksum: 4]
std::string RecordOf(absl::string_view event) {
  std::string record;
  AppendRaw(uint64_t{event.size()}, &record);
  AppendRaw(MaskedCrc(record), &record);
  absl::StrAppend(&record, event);
  AppendRaw(MaskedCrc(event), &record);
  return record;
}

std::string EventAt(absl::Time time) {
  std::string event;
  AppendKey(kEventWallTime, kFixed64, &event);
  AppendRaw(absl::ToDoubleSeconds(time - absl::UnixEpoch()), &event);
  return event;
}

std::string EventOf(Round round, absl::Time time) {
  std::string event = EventAt(time);
  AppendInteger(kEventStep, static_cast<uint64_t>(round.value()), &event);
  return event;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && *name != '\0' ? name : "localhost";
}

}  // namespace

TensorBoardScalars ScalarsOf(const rounds::RoundSummary& summary) {
  TensorBoardScalars scalars;
  const auto add = [&scalars](absl::string_view tag, std::optional<double> value) {
    if (value.has_value() && std::isfinite(*value)) scalars.emplace_back(tag, *value);
  };
  add("loss/train", summary.train_loss);
  add("loss/heldout", summary.heldout_loss);
  add("accuracy/heldout", summary.heldout_accuracy);
  if (summary.trained) {
    add("progress/learning_rate", summary.learning_rate);
    add("progress/workers", summary.workers);
    add("progress/seconds_of_round", absl::ToDoubleSeconds(summary.duration));
  }
  add("progress/samples", static_cast<double>(summary.total_samples));
  if (summary.epoch > 0.0) add("progress/epoch", summary.epoch);
  for (const auto& [name, value] : summary.metrics) add(absl::StrCat("program/", name), value);
  return scalars;
}

std::string TensorBoardHeader(absl::Time now) {
  std::string event = EventAt(now);
  AppendBytes(kEventFileVersion, kVersion, &event);
  return RecordOf(event);
}

std::string TensorBoardRound(Round round, absl::Time time, const TensorBoardScalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string one;
    AppendBytes(kValueTag, tag, &one);
    AppendKey(kValueSimple, kFixed32, &one);
    AppendRaw(static_cast<float>(value), &one);
    AppendBytes(kSummaryValue, one, &summary);
  }
  std::string event = EventOf(round, time);
  AppendBytes(kEventSummary, summary, &event);
  return RecordOf(event);
}

std::string TensorBoardRestart(Round next_round, absl::Time now) {
  std::string session;
  AppendInteger(kSessionStatus, kSessionStart, &session);
  std::string event = EventOf(next_round, now);
  AppendBytes(kEventSessionLog, session, &event);
  return RecordOf(event);
}

absl::StatusOr<TensorBoardFile> TensorBoardFile::Create(const std::string& folder, absl::Time now) {
  const std::optional<std::string> checkpoint =
      checkpoints::CheckpointAround(storage::FileSystem::Real(), folder);
  if (checkpoint.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " is or lies in checkpoint ", *checkpoint,
                     ", where only servers write files; give a folder outside of it"));
  }
  // TensorBoard reads the files of a folder in the order of their names.
  TensorBoardFile file(
      absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", folder, absl::ToUnixSeconds(now),
                      HostName(), static_cast<int>(getpid())),
      now);
  RETURN_IF_ERROR(file.Open());
  return file;
}

absl::Status TensorBoardFile::Open() {
  const std::string folder = DirectoryOf(path_);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "make", folder);
  const int descriptor = open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return ErrnoStatus(errno, "create", path_);
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = descriptor;
  num_bytes_ = 0;
  return Write(TensorBoardHeader(created_at_));
}

TensorBoardFile::TensorBoardFile(TensorBoardFile&& other) noexcept
    : path_(std::move(other.path_)),
      created_at_(other.created_at_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      num_bytes_(other.num_bytes_) {}

TensorBoardFile::~TensorBoardFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status TensorBoardFile::Append(absl::string_view record) {
  struct stat facts;
  const bool is_removed = fstat(descriptor_, &facts) == 0 && facts.st_nlink == 0;
  // A header that could not be written is tried again, because the file needs it.
  if (is_removed || num_bytes_ == 0) RETURN_IF_ERROR(Open());
  return Write(record);
}

absl::Status TensorBoardFile::Write(absl::string_view record) {
  size_t written = 0;
  while (written < record.size()) {
    const ssize_t count = write(descriptor_, record.data() + written, record.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const absl::Status error = ErrnoStatus(errno, "write", path_);
      // The file is cut back, because an incomplete record would hide all records after it.
      if (ftruncate(descriptor_, num_bytes_) != 0) {
        return ErrnoStatus(errno, "cut back", path_);
      }
      return error;
    }
    written += static_cast<size_t>(count);
  }
  num_bytes_ += static_cast<int64_t>(record.size());
  return absl::OkStatus();
}

}  // namespace lodestar::status
