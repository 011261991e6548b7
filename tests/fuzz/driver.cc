// SPDX-License-Identifier: Apache-2.0

// Runs a target on its corpus, and then on changed inputs, which are the same in every run:
//   TARGET CORPUS [--executions=N] [--seed=N]
//   TARGET --input=FILE           one input
//   TARGET --write_corpus=FOLDER  writes the target's valid inputs there
// If an input ends the process, takes too much memory or does not end, the input is written to a
// file, and the name of the file is printed.

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

constexpr int64_t kMaxAllocatedBytes = int64_t{64} << 20;  // limit for one input
constexpr size_t kMaxInputBytes = 64 << 10;
// No input takes even a second, but a machine may be slow.
constexpr unsigned kMaxSeconds = 120;

std::atomic<int64_t> allocated_bytes = 0;
std::atomic<int64_t> highest_bytes = 0;
std::atomic<int64_t> limit_bytes = INT64_MAX;

// A signal handler reads these variables.
const char* current_data = nullptr;
size_t current_size = 0;
char failure_path[1024] = "fuzz-failure";

void Say(const char* text) { static_cast<void>(!write(STDERR_FILENO, text, strlen(text))); }

void* Allocate(size_t size) {
  void* const memory = malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = allocated_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  if (now > highest_bytes) highest_bytes = now;
  if (now > limit_bytes) {
    limit_bytes = INT64_MAX;
    Say("the input takes more than 64 MiB of memory\n");
    abort();
  }
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  allocated_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  free(memory);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }

namespace lodestar::fuzz {
namespace {

using Chance = std::mt19937_64;

void OnSignal(int number) {
  signal(number, SIG_DFL);
  if (number == SIGALRM) Say("the input does not end\n");
  const int file = open(failure_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0) static_cast<void>(!write(file, current_data, current_size));
  Say("the input is in ");
  Say(failure_path);
  Say("\n");
  raise(number);
}

void WatchSignals() {
  // Bazel keeps the files in this folder.
  if (const char* folder = getenv("TEST_UNDECLARED_OUTPUTS_DIR"); folder != nullptr) {
    snprintf(failure_path, sizeof(failure_path), "%s/fuzz-failure", folder);
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    signal(number, OnSignal);
  }
}

void Execute(const std::string& input) {
  current_data = input.data();
  current_size = input.size();
  alarm(kMaxSeconds);
  limit_bytes = allocated_bytes + kMaxAllocatedBytes;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  limit_bytes = INT64_MAX;
  alarm(0);
}

std::string ReadInput(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  LODESTAR_CHECK(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Numbers at which the handling of sizes, counts and signs changes.
constexpr std::array<uint64_t, 16> kInteresting = {
    0,       1,          0x7f,       0x80,       0xff,        0x100,      0x7fff,    0xffff,
    0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 1ull << 40, INT64_MAX, UINT64_MAX};

void WriteNumber(std::string& input, size_t at, uint64_t value, size_t bytes, bool is_big_endian) {
  for (size_t i = 0; i < bytes && at + i < input.size(); ++i) {
    const size_t shift = 8 * (is_big_endian ? bytes - 1 - i : i);
    input[at + i] = static_cast<char>(value >> shift);
  }
}

std::string VarintOf(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Changes the input except for its first byte, which chooses the case.
void Mutate(std::string& input, const std::vector<std::string>& others, Chance& chance) {
  const size_t size = input.size();
  if (size < 2) {
    input.push_back(static_cast<char>(chance()));
    return;
  }
  const auto below = [&chance](size_t end) { return static_cast<size_t>(chance() % end); };
  const size_t at = 1 + below(size - 1);
  const size_t length = 1 + below(std::min<size_t>(size - at, 1 + below(64)));
  const uint64_t number = kInteresting[below(kInteresting.size())] + below(3) - 1;
  switch (below(12)) {
    case 0:
    case 1:
      input[at] ^= static_cast<char>(1 << below(8));
      break;
    case 2:
    case 3:
      input[at] = static_cast<char>(chance());
      break;
    case 4:
      input.resize(at);
      break;
    case 5:
      WriteNumber(input, at, number, size_t{1} << below(4), below(2) == 0);
      break;
    case 6:
      input.insert(at,
                   below(2) == 0 ? VarintOf(number) : absl::StrCat(static_cast<int64_t>(number)));
      break;
    case 7:
      input.replace(at, length, VarintOf(number));
      break;
    case 8:
      input.erase(at, length);
      break;
    case 9:
      input.insert(1 + below(size - 1), input.substr(at, length));
      break;
    case 10: {
      const std::string& other = others[below(others.size())];
      if (other.empty()) break;
      const size_t begin = below(other.size());
      input.replace(at, below(2) == 0 ? length : size - at,
                    other.substr(begin, 1 + below(other.size() - begin)));
      break;
    }
    default: {
      // Repeats a piece of the input many times, so that the input grows.
      const std::string piece = input.substr(at, length);
      for (size_t left = size_t{1} << below(13); left > 0 && input.size() < kMaxInputBytes;
           --left) {
        input.insert(at, piece);
        if (below(64) == 0) break;
      }
    }
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
}

int WriteCorpus(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const absl::Span<const Case> cases = Cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<std::string> seeds = cases[i].seeds();
    for (size_t seed = 0; seed < seeds.size(); ++seed) {
      std::ofstream file(folder / absl::StrCat(cases[i].name, "-", seed), std::ios::binary);
      file << static_cast<char>(i) << seeds[seed];
      LODESTAR_CHECK(file.good()) << folder;
    }
  }
  return EXIT_SUCCESS;
}

int RunCorpus(const std::filesystem::path& folder, int64_t executions, uint64_t seed) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  LODESTAR_CHECK(!paths.empty()) << folder << " has no inputs";
  std::vector<std::string> inputs;
  for (const std::filesystem::path& path : paths) {
    inputs.push_back(ReadInput(path));
    const int64_t before = num_accepted;
    Execute(inputs.back());
    // The corpus also has inputs that fuzzing has found. Their names begin with "found-", and they
    // need not be valid.
    const bool is_found = absl::StartsWith(path.filename().string(), "found-");
    LODESTAR_CHECK(num_accepted > before || is_found)
        << path << " is not valid any more: write the corpus anew, see README.md";
  }
  // The pools are separate per case, so that a case that accepts nearly every input does not
  // displace the others.
  std::vector<std::vector<std::string>> pools(Cases().size());
  for (const std::string& input : inputs) {
    if (!input.empty()) pools[static_cast<uint8_t>(input[0]) % pools.size()].push_back(input);
  }
  for (size_t i = 0; i < pools.size(); ++i) {
    LODESTAR_CHECK(!pools[i].empty()) << Cases()[i].name << " has no input in " << folder;
  }
  // Changed inputs that were accepted are changed again.
  constexpr size_t kMaxKept = 64;
  Chance chance(seed);
  int64_t num_taken = 0;
  highest_bytes = allocated_bytes.load();
  const int64_t bytes_before = allocated_bytes;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < executions; ++i) {
    std::vector<std::string>& pool = pools[chance() % pools.size()];
    std::string input = pool[chance() % pool.size()];
    for (size_t changes = 1 + chance() % 4; changes > 0; --changes) Mutate(input, inputs, chance);
    const int64_t before = num_accepted;
    Execute(input);
    if (num_accepted == before) continue;
    ++num_taken;
    if (pool.size() < kMaxKept) {
      pool.push_back(std::move(input));
    } else if (chance() % 4 == 0) {
      pool[pool.size() / 2 + chance() % (pool.size() / 2)] = std::move(input);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << inputs.size() << " files and " << executions << " changed inputs, of which "
            << num_taken << " were taken; "
            << static_cast<int64_t>(static_cast<double>(executions) / seconds)
            << " a second; at most " << ((highest_bytes - bytes_before) >> 10)
            << " KiB of memory\n";
  return EXIT_SUCCESS;
}

int Main(absl::Span<char* const> arguments) {
  std::string corpus;
  std::string input;
  int64_t executions = 0;
  uint64_t seed = 1;
  for (absl::string_view argument : arguments.subspan(1)) {
    if (absl::ConsumePrefix(&argument, "--executions=")) {
      LODESTAR_CHECK(absl::SimpleAtoi(argument, &executions)) << argument;
    } else if (absl::ConsumePrefix(&argument, "--seed=")) {
      LODESTAR_CHECK(absl::SimpleAtoi(argument, &seed)) << argument;
    } else if (absl::ConsumePrefix(&argument, "--write_corpus=")) {
      return WriteCorpus(std::string(argument));
    } else if (absl::ConsumePrefix(&argument, "--input=")) {
      input = std::string(argument);
    } else {
      corpus = std::string(argument);
    }
  }
  WatchSignals();
  if (input.empty()) return RunCorpus(corpus, executions, seed);
  Execute(ReadInput(input));
  std::cout << (num_accepted > 0 ? "taken\n" : "refused\n");
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace lodestar::fuzz

int main(int argc, char** argv) { return lodestar::fuzz::Main({argv, static_cast<size_t>(argc)}); }
