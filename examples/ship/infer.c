/* Digits from a model file, in C:
 *
 *   cc -std=c11 -O2 -I include infer.c libcw_run.a -ldl -lpthread -o infer
 *   ./infer libcw_sim.so digits.cw images.bin
 *
 * The model says how many images a run takes; those of the file are given run after run. */
#include <causeway/run.h>
#include <stdio.h>
#include <stdlib.h>

static int die(const char* message) {
  fprintf(stderr, "infer: %s\n", message);
  return 1;
}

static int infer(cw_run_model* model, cw_run_session* session, FILE* images) {
  cw_run_port image, output;
  if (cw_run_port_of(model, 0, 0, &image) || cw_run_port_of(model, 1, 0, &output)) return die(cw_run_error());
  if (image.dtype != 11 || output.dtype != 11 || image.ndim != 2 || output.ndim != 2)
    return die("this program is for float32 images and scores, a row each");
  float* pixels = malloc(image.bytes);
  float* scores = malloc(output.bytes);
  int status = pixels && scores ? 0 : die("out of memory");
  while (!status && fread(pixels, 1, image.bytes, images) == image.bytes) {
    if (cw_run_set(session, 0, pixels, image.bytes) || cw_run(session) ||
        cw_run_get(session, 0, scores, output.bytes)) {
      status = die(cw_run_error());
      break;
    }
    for (int64_t row = 0; row < output.shape[0]; ++row) {
      const float* s = scores + row * output.shape[1];
      int64_t best = 0;
      for (int64_t i = 1; i < output.shape[1]; ++i)
        if (s[i] > s[best]) best = i;
      printf("%lld", (long long)best);
    }
    printf("\n");
  }
  free(pixels), free(scores);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 4) return die("usage: infer VENDOR-LIBRARY MODEL IMAGES");
  FILE* images = fopen(argv[3], "rb");
  if (!images) return die("the images cannot be read");
  cw_run_device* device = NULL;
  cw_run_model* model = NULL;
  cw_run_session* session = NULL;
  /* The simulated chip's kernels are C that is built here: the flag says that the file is our own. */
  const int status = cw_run_open(argv[1], 0, &device) || cw_run_load(device, argv[2], CW_RUN_ALLOW_HOST_CODE, &model) ||
                             cw_run_begin(model, NULL, &session)
                         ? die(cw_run_error())
                         : infer(model, session, images);
  cw_run_end(session), cw_run_unload(model), cw_run_close(device);
  fclose(images);
  return status;
}
