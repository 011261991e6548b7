// Stands in for cuBLASLt and cuDNN where a program only asks for their versions.
#include <cstddef>

// NOLINTBEGIN: the names are NVIDIA's.
extern "C" {
size_t cublasLtGetVersion() { return 130002; }
size_t cudnnGetVersion() { return 91900; }
}
// NOLINTEND
