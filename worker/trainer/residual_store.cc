// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/residual_store.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "LSRESID1";
constexpr size_t kPrefixBytes = 16;  // The magic and the length of the record.

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

std::vector<float> FloatsAt(const uint8_t* from, int64_t count) {
  std::vector<float> floats(count);
  std::memcpy(floats.data(), from, count * sizeof(float));
  return floats;
}

}  // namespace

ResidualStore::ResidualStore(storage::FileSystem* file_system, std::string folder,
                             std::string worker_name)
    : file_system_(file_system),
      folder_(std::move(folder)),
      worker_name_(std::move(worker_name)),
      path_(absl::StrCat(folder_, "/residual")) {}

absl::Span<const std::byte> ResidualStore::Stored::Of(uint32_t bucket) const {
  return {reinterpret_cast<const std::byte*>(places[bucket]),
          static_cast<size_t>(record.bucket_bytes[bucket])};
}

absl::Status ResidualStore::Save(const ResidualRecord& record, absl::Span<const float> before,
                                 absl::Span<const float> after,
                                 absl::Span<const absl::Span<const std::byte>> contribution) {
  const std::string text = FormatRecord(record);
  const uint64_t length = text.size();
  const std::string unfinished = absl::StrCat(path_, ".new");
  ASSIGN_OR_RETURN(auto writer, storage::SequentialFileWriter::Create(*file_system_, unfinished));
  RETURN_IF_ERROR(writer.Append(kMagic));
  RETURN_IF_ERROR(writer.Append(&length, sizeof(length)));
  RETURN_IF_ERROR(writer.Append(text));
  RETURN_IF_ERROR(writer.Append(before.data(), before.size() * sizeof(float)));
  RETURN_IF_ERROR(writer.Append(after.data(), after.size() * sizeof(float)));
  for (const absl::Span<const std::byte> bytes : contribution) {
    RETURN_IF_ERROR(writer.Append(bytes.data(), bytes.size()));
  }
  const uint32_t sum = writer.crc32c();
  RETURN_IF_ERROR(writer.Append(&sum, sizeof(sum)));
  RETURN_IF_ERROR(writer.Finish(/*sync=*/true));
  RETURN_IF_ERROR(file_system_->Rename(unfinished, path_));
  return file_system_->SyncDirectory(folder_);
}

absl::StatusOr<ResidualStore::Stored> ResidualStore::Load() {
  Stored stored;
  ASSIGN_OR_RETURN(stored.file, file_system_->Map(path_));
  const absl::Span<const uint8_t> bytes = stored.file.bytes;
  uint32_t sum = 0;
  if (bytes.size() < kPrefixBytes + sizeof(sum)) {
    return Damaged(path_, absl::StrCat("it has ", bytes.size(), " bytes and is cut short"));
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged(path_, "it is not a file with a residual");
  }
  const size_t summed = bytes.size() - sizeof(sum);
  std::memcpy(&sum, bytes.data() + summed, sizeof(sum));
  if (const uint32_t is = crc32c::Crc32c(bytes.subspan(0, summed)); is != sum) {
    return Damaged(path_, absl::StrCat("its checksum is ", absl::Hex(is, absl::kZeroPad8),
                                       ", but the file says ", absl::Hex(sum, absl::kZeroPad8),
                                       "; the file is damaged or cut short"));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data() + kMagic.size(), sizeof(length));
  if (length > summed - kPrefixBytes) {
    return Damaged(path_, absl::StrCat("it announces a description of ", length,
                                       " bytes, but the whole file has ", summed, " bytes"));
  }
  absl::StatusOr<ResidualRecord> record = ParseRecord(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, static_cast<size_t>(length)));
  if (!record.ok()) return Damaged(path_, record.status().message());
  stored.record = *std::move(record);
  const int64_t elements = stored.record.num_elements();
  const auto rest = static_cast<int64_t>(summed - kPrefixBytes - length);
  const int64_t wanted =
      2 * elements * static_cast<int64_t>(sizeof(float)) + stored.record.contribution_bytes();
  if (rest != wanted) {
    return Damaged(path_, absl::StrCat(rest, " bytes follow its description, but ", elements,
                                       " elements need ", wanted, " bytes"));
  }
  const uint8_t* at = bytes.data() + kPrefixBytes + length;
  stored.before = FloatsAt(at, elements);
  at += elements * sizeof(float);
  stored.after = FloatsAt(at, elements);
  at += elements * sizeof(float);
  for (const int64_t size : stored.record.bucket_bytes) {
    stored.places.push_back(at);
    at += size;
  }
  return stored;
}

absl::Status ResidualStore::Remove() {
  RETURN_IF_ERROR(file_system_->RemoveAll(path_));
  RETURN_IF_ERROR(file_system_->RemoveAll(absl::StrCat(path_, ".new")));
  return file_system_->SyncDirectory(folder_);
}

}  // namespace lodestar::trainer
