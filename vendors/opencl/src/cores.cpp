#include "cores.hpp"

#ifdef __linux__
#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#endif

namespace opencl {

#ifdef __linux__

std::vector<int> threads() {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/task");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder))
    if (const int number = std::atoi(entry->d_name)) found.push_back(number);
  closedir(folder);
  std::sort(found.begin(), found.end());
  return found;
}

void pin_new_threads(const std::vector<int>& before) {
  std::vector<int> added, cores;
  for (int thread : threads())
    if (!std::binary_search(before.begin(), before.end(), thread)) added.push_back(thread);
  cpu_set_t allowed;
  if (before.empty() || sched_getaffinity(0, sizeof allowed, &allowed)) return;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (cores.size() < 2 || added.size() != cores.size()) return;
  for (size_t i = 0; i < cores.size(); ++i) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[i], &one);
    sched_setaffinity(added[i], sizeof one, &one);  // where it is refused, the thread stays as it is
  }
}

#else

std::vector<int> threads() { return {}; }
void pin_new_threads(const std::vector<int>&) {}

#endif

}  // namespace opencl
