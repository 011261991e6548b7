#include "worker/data/cifar10_reader.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/file_io.h"
#include "common/status_macros.h"
#include "worker/data/corpus_files.h"

namespace lodestar {
namespace {

// Record: [label | 1024 red | 1024 green | 1024 blue]
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
        absl::StrCat(path, ": no such file; CIFAR-10 data is ", Cifar10FileNames()));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const DataFile> opened, DataFile::Open(path));
  corpus->files.push_back(opened);
  const int64_t num_bytes = opened->num_bytes();
  if (num_bytes == 0 || num_bytes % kRecordBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", num_bytes, " bytes; the record at offset ",
                     num_bytes / kRecordBytes * kRecordBytes, " is not complete (", kRecordBytes,
                     " bytes each); the file is cut short or not the binary version of CIFAR-10"));
  }
  ImageFile file;
  file.images = opened;
  file.image_offset = 1;
  file.image_stride = kRecordBytes;
  file.label_places = {.file = opened, .offset = 0, .stride = kRecordBytes};
  ASSIGN_OR_RETURN(file.labels, ReadLabels(file.label_places, num_bytes / kRecordBytes));
  return file;
}

}  // namespace

absl::StatusOr<ImageCorpus> OpenCifar10(const std::string& folder) {
  RETURN_IF_ERROR(CheckNotCifar100(folder));
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
  return corpus;
}

absl::Status CheckNotCifar100(const std::string& folder) {
  const auto has = [&folder](absl::string_view name) {
    return IsFile(absl::StrCat(folder, "/", name));
  };
  if (!has("fine_label_names.txt") && !has("coarse_label_names.txt")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      folder, " holds CIFAR-100, whose images have two labels each and which is not read here; ",
      "give CIFAR-10 (", Cifar10FileNames(), ") or a folder of IDX files"));
}

bool LooksLikeCifar10Folder(const std::string& folder) {
  for (int number = 1; number <= kNumTrainFiles; ++number) {
    if (IsFile(absl::StrCat(folder, "/", TrainName(number)))) return true;
  }
  return IsFile(absl::StrCat(folder, "/", kHeldoutName));
}

std::string Cifar10FileNames() {
  return absl::StrCat(TrainName(1), " to ", TrainName(kNumTrainFiles), " and ", kHeldoutName);
}

}  // namespace lodestar
