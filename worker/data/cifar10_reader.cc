// SPDX-License-Identifier: Apache-2.0

#include "worker/data/cifar10_reader.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "worker/data/corpus_files.h"

namespace lodestar::data {
namespace {

// A record is [label | 1024 red | 1024 green | 1024 blue].
constexpr ImageShape kShape = {3, 32, 32};
constexpr int64_t kRecordBytes = 1 + 3 * 32 * 32;
constexpr int kNumTrainFiles = 5;
constexpr char kHeldoutName[] = "test_batch.bin";

std::string TrainName(int number) { return absl::StrCat("data_batch_", number, ".bin"); }

absl::StatusOr<ImageFile> OpenBatch(const std::string& folder, const std::string& name,
                                    ImageCorpus* corpus) {
  const std::string path = absl::StrCat(folder, "/", name);
  if (!IsFile(path)) {
    const absl::Status there = CheckIsThere(path);
    if (absl::IsPermissionDenied(there)) return there;
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file; CIFAR-10 data has the files ", Cifar10FileNames()));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const DataFile> opened, DataFile::Open(path));
  corpus->files.push_back(opened);
  const int64_t num_bytes = opened->num_bytes();
  if (num_bytes == 0 || num_bytes % kRecordBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the file has ", num_bytes, " bytes, and the record at offset ",
        num_bytes / kRecordBytes * kRecordBytes, " is not complete (a record has ", kRecordBytes,
        " bytes). The file is cut short, or is not the binary version of CIFAR-10; download it "
        "again"));
  }
  ImageFile file;
  file.images = opened;
  file.image_offset = 1;
  file.image_stride = kRecordBytes;
  file.label_places = {.file = opened, .offset = 0, .stride = kRecordBytes};
  ASSIGN_OR_RETURN(file.labels, ReadLabels(file.label_places, num_bytes / kRecordBytes));
  return file;
}

// Returns the names of files that are named like batches for training but have other numbers than 1
// to 5.
std::vector<std::string> OtherBatches(const std::string& folder) {
  std::vector<std::string> names;
  // If the folder cannot be listed, it counts as a folder without such files.
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "data_batch_") && absl::EndsWith(name, ".bin")) {
      names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  for (int number = 1; number <= kNumTrainFiles; ++number) {
    names.erase(std::remove(names.begin(), names.end(), TrainName(number)), names.end());
  }
  return names;
}

}  // namespace

absl::StatusOr<ImageCorpus> OpenCifar10(const std::string& folder) {
  RETURN_IF_ERROR(CheckNoOtherCifar(folder));
  ImageCorpus corpus;
  corpus.format = "cifar10";
  corpus.shape = kShape;
  for (int number = 1; number <= kNumTrainFiles; ++number) {
    ASSIGN_OR_RETURN(ImageFile file, OpenBatch(folder, TrainName(number), &corpus));
    corpus.train.push_back(std::move(file));
  }
  ASSIGN_OR_RETURN(ImageFile heldout, OpenBatch(folder, kHeldoutName, &corpus));
  corpus.heldout.push_back(std::move(heldout));
  RETURN_IF_ERROR(LeaveOutHeldoutCopies(&corpus));
  if (const std::vector<std::string> others = OtherBatches(folder); !others.empty()) {
    corpus.notes.push_back(absl::StrCat("left out ", absl::StrJoin(others, ", "),
                                        ", because CIFAR-10 has ", kNumTrainFiles,
                                        " batches for training"));
  }
  return corpus;
}

absl::Status CheckNoOtherCifar(const std::string& folder) {
  const auto has = [&folder](absl::string_view name) {
    return IsFile(absl::StrCat(folder, "/", name));
  };
  if (has("fine_label_names.txt") || has("coarse_label_names.txt")) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        " holds CIFAR-100, which Lodestar cannot read because its images have two labels each; ",
        "give CIFAR-10 (", Cifar10FileNames(), ") or a folder of IDX files"));
  }
  if (LooksLikeCifar10Folder(folder)) return absl::OkStatus();
  if (has("data_batch_1") && has("test_batch")) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        " holds the Python version of CIFAR-10 (data_batch_1, test_batch). Download the binary ",
        "version (cifar-10-binary.tar.gz), or convert it in that folder in Python: import pickle; ",
        "[open(n + '.bin', 'wb').write(b''.join(bytes([l]) + bytes(p) for l, p in ",
        "zip(d[b'labels'], d[b'data']))) for n in ['test_batch'] + ['data_batch_%d' % i for i in ",
        "range(1, 6)] for d in [pickle.load(open(n, 'rb'), encoding='bytes')]]"));
  }
  if (has("data_batch_1.bin.gz") && has("test_batch.bin.gz")) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " holds compressed files of CIFAR-10 (data_batch_1.bin.gz); ",
                     "unpack them with gunzip ", folder, "/*_batch*.bin.gz"));
  }
  return absl::OkStatus();
}

bool LooksLikeCifar10Folder(const std::string& folder) {
  for (int number = 1; number <= kNumTrainFiles; ++number) {
    if (IsFile(absl::StrCat(folder, "/", TrainName(number)))) return true;
  }
  return IsFile(absl::StrCat(folder, "/", kHeldoutName));
}

bool HasAllCifar10Files(const std::string& folder) {
  bool has_all = IsFile(absl::StrCat(folder, "/", kHeldoutName));
  for (int number = 1; number <= kNumTrainFiles; ++number) {
    has_all = has_all && IsFile(absl::StrCat(folder, "/", TrainName(number)));
  }
  return has_all;
}

std::string Cifar10FileNames() {
  return absl::StrCat(TrainName(1), " to ", TrainName(kNumTrainFiles), " and ", kHeldoutName);
}

}  // namespace lodestar::data
