// SPDX-License-Identifier: Apache-2.0

// The functions of NVIDIA's driver that cuDNN calls while it makes plans, for machines without a
// card. cuDNN compiles its code as for a real card. This stand-in accepts the code, but does not
// load it. Nothing can run.
#include <cstddef>

// NOLINTBEGIN: the names are CUDA's.
extern "C" {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorName(int, const char** name) {
  *name = "stand-in";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "there is no driver, but a stand-in";
  return kSuccess;
}
int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  *library = library;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = kernel;
  return kSuccess;
}
int cuKernelGetFunction(void** function, void*) {
  *function = function;
  return kSuccess;
}
int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
int cuLibraryUnload(void*) { return kSuccess; }

#define LODESTAR_NO_DEVICE(name) \
  int name() { return kNoDevice; }
LODESTAR_NO_DEVICE(cuCtxGetCurrent)
LODESTAR_NO_DEVICE(cuCtxGetLimit)
LODESTAR_NO_DEVICE(cuCtxPopCurrent)
LODESTAR_NO_DEVICE(cuCtxPushCurrent)
LODESTAR_NO_DEVICE(cuDeviceGet)
LODESTAR_NO_DEVICE(cuDeviceGetCount)
LODESTAR_NO_DEVICE(cuInit)
LODESTAR_NO_DEVICE(cuKernelGetAttribute)
LODESTAR_NO_DEVICE(cuLaunchCooperativeKernel)
LODESTAR_NO_DEVICE(cuLaunchKernel)
LODESTAR_NO_DEVICE(cuLaunchKernelEx)
LODESTAR_NO_DEVICE(cuLibraryLoadFromFile)
LODESTAR_NO_DEVICE(cuLinkAddData)
LODESTAR_NO_DEVICE(cuLinkComplete)
LODESTAR_NO_DEVICE(cuLinkCreate)
LODESTAR_NO_DEVICE(cuLinkDestroy)
LODESTAR_NO_DEVICE(cuModuleGetFunction)
LODESTAR_NO_DEVICE(cuModuleLoadData)
LODESTAR_NO_DEVICE(cuModuleUnload)
LODESTAR_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
LODESTAR_NO_DEVICE(cuStreamGetCtx)
LODESTAR_NO_DEVICE(cuTensorMapEncodeIm2col)
LODESTAR_NO_DEVICE(cuTensorMapEncodeTiled)

}  // extern "C"
// NOLINTEND
