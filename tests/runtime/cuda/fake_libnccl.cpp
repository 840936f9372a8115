// SPDX-License-Identifier: Apache-2.0
// The function of NCCL that is called while it is opened. A test says what it answers.
extern "C" {
int fake_version = 22809;

int ncclGetVersion(int* version) {
  *version = fake_version;
  return 0;
}
}
