// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/inner_state_store.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/safetensors.h"

namespace lodestar::trainer {
namespace {

constexpr int64_t kMaxRecordBytes = 1 << 16;

struct WrittenRecord {
  InnerStateRecord record;
  int64_t num_vectors = 0;
  storage::WrittenFile file;
};

template <typename Archive>
void Describe(Archive& archive, WrittenRecord& written) {
  archive("worker", written.record.worker_name);
  archive("job", written.record.job);
  archive("layout_hash", written.record.layout_hash);
  archive("round", written.record.round);
  archive("steps", written.record.steps);
  archive("vectors", written.num_vectors);
  archive("bytes", written.file.num_bytes);
  archive("crc32c", written.file.crc32c);
}

absl::StatusOr<WrittenRecord> ParseWritten(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  WrittenRecord written;
  RETURN_IF_ERROR(archive::ReadRecord(json, written));
  return written;
}

}  // namespace

InnerStateStore::InnerStateStore(storage::FileSystem* file_system, std::string folder,
                                 std::string worker_name)
    : file_system_(file_system),
      folder_(std::move(folder)),
      worker_name_(std::move(worker_name)),
      record_path_(absl::StrCat(folder_, "/inner.json")),
      vectors_path_(absl::StrCat(folder_, "/inner.safetensors")) {}

absl::Status InnerStateStore::Save(InnerStateRecord record, int num_vectors, int64_t num_elements,
                                   ReadVector read) {
  RETURN_IF_ERROR(Remove());
  const auto write = [&]() -> absl::Status {
    std::vector<storage::SafetensorsEntry> entries;
    for (int i = 0; i < num_vectors; ++i) entries.push_back({absl::StrCat(i), {num_elements}});
    ASSIGN_OR_RETURN(const std::unique_ptr<storage::SafetensorsWriter> writer,
                     storage::SafetensorsWriter::Create(*file_system_, vectors_path_, entries, {}));
    std::vector<float> values(num_elements);
    for (int i = 0; i < num_vectors; ++i) {
      RETURN_IF_ERROR(read(i, absl::MakeSpan(values)));
      RETURN_IF_ERROR(writer->Append(values));
    }
    ASSIGN_OR_RETURN(const storage::WrittenFile file, writer->Finish(/*sync=*/true));
    record.worker_name = worker_name_;
    const WrittenRecord written = {record, num_vectors, file};
    const std::string unfinished = absl::StrCat(record_path_, ".new");
    ASSIGN_OR_RETURN(auto text, storage::SequentialFileWriter::Create(*file_system_, unfinished));
    RETURN_IF_ERROR(text.Append(FormatJson(archive::RecordToJson(written))));
    RETURN_IF_ERROR(text.Finish(/*sync=*/true));
    RETURN_IF_ERROR(file_system_->Rename(unfinished, record_path_));
    return file_system_->SyncDirectory(folder_);
  };
  absl::Status written = write();
  if (!written.ok()) Remove().IgnoreError();
  return written;
}

absl::StatusOr<InnerStateStore::Stored> InnerStateStore::Load() const {
  if (!file_system_->Exists(record_path_)) {
    return absl::NotFoundError(absl::StrCat(record_path_, ": there is no such file"));
  }
  const auto damaged = [this](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(record_path_, ": ", what));
  };
  ASSIGN_OR_RETURN(const std::string text,
                   file_system_->ReadWholeFile(record_path_, kMaxRecordBytes));
  absl::StatusOr<WrittenRecord> written = ParseWritten(text);
  if (!written.ok()) return damaged(written.status().message());
  const absl::StatusOr<std::unique_ptr<storage::SafetensorsReader>> file =
      storage::SafetensorsReader::Open(*file_system_, vectors_path_);
  if (!file.ok()) return damaged(file.status().message());
  if ((*file)->file_bytes() != written->file.num_bytes ||
      (*file)->ComputeCrc32c() != written->file.crc32c) {
    return damaged(
        absl::StrCat(vectors_path_, " is damaged, or was saved at another time than this file"));
  }
  Stored stored;
  stored.record = std::move(written->record);
  for (int64_t i = 0; i < written->num_vectors; ++i) {
    const absl::StatusOr<absl::Span<const float>> values = (*file)->Floats(absl::StrCat(i));
    if (!values.ok()) return damaged(values.status().message());
    stored.vectors.emplace_back(values->begin(), values->end());
  }
  return stored;
}

absl::Status InnerStateStore::Remove() {
  const std::string unfinished = absl::StrCat(record_path_, ".new");
  bool has_removed = false;
  for (const std::string& path : {record_path_, unfinished, vectors_path_}) {
    if (!file_system_->Exists(path)) continue;
    RETURN_IF_ERROR(file_system_->RemoveAll(path));
    has_removed = true;
  }
  return has_removed ? file_system_->SyncDirectory(folder_) : absl::OkStatus();
}

}  // namespace lodestar::trainer
