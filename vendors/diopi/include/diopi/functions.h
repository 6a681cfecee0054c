// DIOPI's functions, those that the table of src/ops calls: 264 of 396, by their public names and signatures. Each is weak: what
// a library lacks is not there, and nothing here asks for it to be.
#pragma once

#include "diopirt.h"

#define Out diopiTensorHandle_t
#define In diopiConstTensorHandle_t
#define Number diopiScalar_t
#define Ints diopiSize_t
#define Generator diopiGeneratorHandle_t
#define Reduction diopiReduction_t
#define RoundMode diopiRoundMode_t
#define DIOPI(name, ...) __attribute__((weak)) diopiError_t diopi##name(diopiContextHandle_t, __VA_ARGS__)

extern "C" {

__attribute__((weak)) const char* diopiGetVendorName();
__attribute__((weak)) const char* diopiGetImplVersion();
__attribute__((weak)) const char* diopiGetLastErrorString();

// Element by element.
DIOPI(Abs, Out, In);
DIOPI(AbsInp, Out);
DIOPI(Neg, Out, In);
DIOPI(NegInp, Out);
DIOPI(Sign, Out, In);
DIOPI(Floor, Out, In);
DIOPI(FloorInp, Out);
DIOPI(Ceil, Out, In);
DIOPI(CeilInp, Out);
DIOPI(Sqrt, Out, In);
DIOPI(SqrtInp, Out);
DIOPI(Rsqrt, Out, In);
DIOPI(RsqrtInp, Out);
DIOPI(Reciprocal, Out, In);
DIOPI(ReciprocalInp, Out);
DIOPI(Sin, Out, In);
DIOPI(SinInp, Out);
DIOPI(Cos, Out, In);
DIOPI(CosInp, Out);
DIOPI(Tan, Out, In);
DIOPI(TanInp, Out);
DIOPI(Asin, Out, In);
DIOPI(AsinInp, Out);
DIOPI(Acos, Out, In);
DIOPI(AcosInp, Out);
DIOPI(Atan, Out, In);
DIOPI(AtanInp, Out);
DIOPI(Sinh, Out, In);
DIOPI(SinhInp, Out);
DIOPI(Cosh, Out, In);
DIOPI(CoshInp, Out);
DIOPI(Tanh, Out, In);
DIOPI(TanhInp, Out);
DIOPI(Asinh, Out, In);
DIOPI(AsinhInp, Out);
DIOPI(Acosh, Out, In);
DIOPI(AcoshInp, Out);
DIOPI(Atanh, Out, In);
DIOPI(AtanhInp, Out);
DIOPI(Exp, Out, In);
DIOPI(ExpInp, Out);
DIOPI(Expm1, Out, In);
DIOPI(Expm1Inp, Out);
DIOPI(Log, Out, In);
DIOPI(LogInp, Out);
DIOPI(Log2, Out, In);
DIOPI(Log2Inp, Out);
DIOPI(Log10, Out, In);
DIOPI(Log10Inp, Out);
DIOPI(Log1p, Out, In);
DIOPI(Log1pInp, Out);
DIOPI(Erf, Out, In);
DIOPI(ErfInp, Out);
DIOPI(Erfinv, Out, In);
DIOPI(ErfinvInp, Out);
DIOPI(Sigmoid, Out, In);
DIOPI(SigmoidInp, Out);
DIOPI(Silu, Out, In);
DIOPI(SiluInp, Out);
DIOPI(Relu, Out, In);
DIOPI(ReluInp, Out);
DIOPI(Hardswish, Out, In);
DIOPI(HardswishInp, Out);
DIOPI(LogicalNot, Out, In);
DIOPI(LogicalNotInp, Out);
DIOPI(BitwiseNot, Out, In);
DIOPI(BitwiseNotInp, Out);
DIOPI(IsNan, Out, In);
DIOPI(Add, Out, In, In, const Number*);
DIOPI(AddInp, Out, In, const Number*);
DIOPI(AddScalar, Out, In, const Number*, const Number*);
DIOPI(AddInpScalar, Out, const Number*, const Number*);
DIOPI(Sub, Out, In, In, const Number*);
DIOPI(SubInp, Out, In, const Number*);
DIOPI(SubScalar, Out, In, const Number*, const Number*);
DIOPI(SubInpScalar, Out, const Number*, const Number*);
DIOPI(Mul, Out, In, In);
DIOPI(MulInp, Out, In);
DIOPI(MulScalar, Out, In, const Number*);
DIOPI(MulInpScalar, Out, const Number*);
DIOPI(Div, Out, In, In, RoundMode);
DIOPI(DivInp, Out, In, RoundMode);
DIOPI(DivScalar, Out, In, const Number*, RoundMode);
DIOPI(DivInpScalar, Out, const Number*, RoundMode);
DIOPI(RemainderTensor, Out, In, In);
DIOPI(RemainderScalar, Out, In, const Number*);
DIOPI(Remainder, Out, const Number*, In);
DIOPI(Pow, Out, In, const Number*);
DIOPI(PowInp, Out, const Number*);
DIOPI(PowTensor, Out, In, In);
DIOPI(PowInpTensor, Out, In);
DIOPI(PowScalar, Out, const Number*, In);
DIOPI(Maximum, Out, In, In);
DIOPI(Minimum, Out, In, In);
DIOPI(Eq, Out, In, In);
DIOPI(EqInp, Out, In);
DIOPI(EqScalar, Out, In, const Number*);
DIOPI(EqInpScalar, Out, const Number*);
DIOPI(Ne, Out, In, In);
DIOPI(NeInp, Out, In);
DIOPI(NeScalar, Out, In, const Number*);
DIOPI(NeInpScalar, Out, const Number*);
DIOPI(Lt, Out, In, In);
DIOPI(LtInp, Out, In);
DIOPI(LtScalar, Out, In, const Number*);
DIOPI(LtInpScalar, Out, const Number*);
DIOPI(Le, Out, In, In);
DIOPI(LeInp, Out, In);
DIOPI(LeScalar, Out, In, const Number*);
DIOPI(LeInpScalar, Out, const Number*);
DIOPI(Gt, Out, In, In);
DIOPI(GtInp, Out, In);
DIOPI(GtScalar, Out, In, const Number*);
DIOPI(GtInpScalar, Out, const Number*);
DIOPI(Ge, Out, In, In);
DIOPI(GeInp, Out, In);
DIOPI(GeScalar, Out, In, const Number*);
DIOPI(GeInpScalar, Out, const Number*);
DIOPI(LogicalAnd, Out, In, In);
DIOPI(LogicalAndInp, Out, In);
DIOPI(LogicalOr, Out, In, In);
DIOPI(LogicalOrInp, Out, In);
DIOPI(BitwiseAnd, Out, In, In);
DIOPI(BitwiseAndInp, Out, In);
DIOPI(BitwiseAndScalar, Out, In, const Number*);
DIOPI(BitwiseAndInpScalar, Out, const Number*);
DIOPI(BitwiseOr, Out, In, In);
DIOPI(BitwiseOrInp, Out, In);
DIOPI(BitwiseOrScalar, Out, In, const Number*);
DIOPI(BitwiseOrInpScalar, Out, const Number*);
DIOPI(Where, Out, In, In, In);
DIOPI(Clamp, Out, In, In, In);
DIOPI(ClampInp, Out, In, In);
DIOPI(ClampScalar, Out, In, const Number*, const Number*);
DIOPI(ClampInpScalar, Out, const Number*, const Number*);
DIOPI(ClampMin, Out, In, In);
DIOPI(ClampMinInp, Out, In);
DIOPI(ClampMinScalar, Out, In, const Number*);
DIOPI(ClampMinInpScalar, Out, const Number*);
DIOPI(ClampMax, Out, In, In);
DIOPI(ClampMaxInp, Out, In);
DIOPI(ClampMaxScalar, Out, In, const Number*);
DIOPI(ClampMaxInpScalar, Out, const Number*);
DIOPI(Addcmul, Out, In, In, In, const Number*);
DIOPI(AddcmulInp, Out, In, In, const Number*);
DIOPI(Addcdiv, Out, In, In, In, const Number*);
DIOPI(AddcdivInp, Out, In, In, const Number*);
DIOPI(LerpTensor, Out, In, In, In);
DIOPI(LerpScalar, Out, In, In, const Number*);
DIOPI(MaskedFillInp, Out, In, In);
DIOPI(MaskedFillInpScalar, Out, In, const Number*);

// Fills, copies and casts.
DIOPI(Fill, Out, const Number*);
DIOPI(ZeroInp, Out);
DIOPI(CopyInp, In, Out);
DIOPI(CastDtype, Out, In);

// Activations and their gradients.
DIOPI(SigmoidBackward, Out, In, In);
DIOPI(TanhBackward, Out, In, In);
DIOPI(SiluBackward, Out, In, In);
DIOPI(Gelu, Out, In, const char*);
DIOPI(GeluBackward, Out, In, In, const char*);
DIOPI(LeakyRelu, Out, In, const Number*);
DIOPI(LeakyReluInp, Out, const Number*);
DIOPI(LeakyReluBackward, Out, In, In, const Number*, bool);
DIOPI(Hardtanh, Out, In, const Number*, const Number*);
DIOPI(HardtanhInp, Out, const Number*, const Number*);
DIOPI(HardtanhBackward, Out, In, In, const Number*, const Number*);
DIOPI(HardswishBackward, Out, In, In);
DIOPI(Threshold, Out, In, const Number*, const Number*);
DIOPI(ThresholdInp, Out, const Number*, const Number*);
DIOPI(ThresholdBackward, Out, In, In, const Number*);

// Reductions, scans, orders.
DIOPI(Sum, Out, In, Ints);
DIOPI(Mean, Out, In, Ints);
DIOPI(Std, Out, In, Ints, const Number*);
DIOPI(Prod, Out, In, const int64_t*);
DIOPI(Max, Out, Out, In, int64_t);
DIOPI(MaxAll, Out, In);
DIOPI(Min, Out, Out, In, int64_t);
DIOPI(MinAll, Out, In);
DIOPI(Amax, Out, In, Ints, bool);
DIOPI(Any, Out, In, const int64_t*);
DIOPI(All, Out, In, const int64_t*);
DIOPI(Argmax, Out, In, const int64_t*, bool);
DIOPI(Argmin, Out, In, const int64_t*, bool);
DIOPI(Norm, Out, In, const Number*, Ints);
DIOPI(LinalgVecNorm, Out, In, Number*, Ints, bool);
DIOPI(Cumsum, Out, In, int64_t);
DIOPI(Topk, Out, Out, In, int64_t, int64_t, bool, bool);
DIOPI(Sort, Out, Out, In, int64_t, bool, const bool*);
DIOPI(Softmax, Out, In, int64_t);
DIOPI(SoftmaxBackward, Out, In, In, int64_t);
DIOPI(LogSoftmax, Out, In, int64_t);
DIOPI(LogSoftmaxBackward, Out, In, In, int64_t);

// Products.
DIOPI(Mm, Out, In, In);
DIOPI(Bmm, Out, In, In);
DIOPI(Matmul, Out, In, In);
DIOPI(Addmm, Out, In, In, In, const Number*, const Number*);
DIOPI(Baddbmm, Out, In, In, In, double, double);
DIOPI(BaddbmmInp, Out, In, In, double, double);

// Layers.
DIOPI(Convolution2d, Out, In, In, In, Ints, Ints, Ints, int64_t);
DIOPI(Convolution2dBackward, Out, Out, Out, In, In, In, Ints*, Ints, Ints, Ints, int64_t);
DIOPI(Convolution3d, Out, In, In, In, Ints, Ints, Ints, int64_t);
DIOPI(Convolution3dBackward, Out, Out, Out, In, In, In, Ints*, Ints, Ints, Ints, int64_t);
DIOPI(ConvTranspose2d, Out, In, In, In, Ints, Ints, Ints, int64_t, Ints);
DIOPI(ConvTranspose2dBackward, Out, Out, Out, In, In, In, Ints*, Ints, Ints, Ints, Ints, int64_t);
DIOPI(ConvTranspose3d, Out, In, In, In, Ints, Ints, Ints, int64_t, Ints);
DIOPI(ConvTranspose3dBackward, Out, Out, Out, In, In, In, Ints*, Ints, Ints, Ints, Ints, int64_t);
DIOPI(BatchNorm, Out, Out, Out, In, In, In, Out, Out, bool, double, double);
DIOPI(BatchNormBackward, Out, Out, Out, In, In, In, In, In, In, In, bool, double);
DIOPI(LayerNorm, Out, Out, Out, In, In, In, Ints, double);
DIOPI(LayerNormBackward, Out, Out, Out, In, In, In, In, In, In, Ints);
DIOPI(GroupNorm, Out, Out, Out, In, In, In, int64_t, double);
DIOPI(GroupNormBackward, Out, Out, Out, In, In, In, In, In, int64_t);
DIOPI(MaxPool2dWithIndices, Out, Out, In, Ints, Ints, Ints, Ints, bool);
DIOPI(MaxPool2dBackward, Out, In, In, Ints, Ints, Ints, Ints, bool, In);
DIOPI(AvgPool2d, Out, In, Ints, Ints, Ints, bool, bool, const int64_t*);
DIOPI(AvgPool2dBackward, Out, In, In, Ints, Ints, Ints, bool, bool, const int64_t*);
DIOPI(AdaptiveAvgPool2d, Out, In, Ints);
DIOPI(AdaptiveAvgPool2dBackward, Out, In, In);
DIOPI(AdaptiveMaxPool2dWithIndices, Out, Out, In, Ints);
DIOPI(AdaptiveMaxPool2dBackward, Out, In, In, In);
DIOPI(UpsampleNearest, Out, In, Ints);
DIOPI(UpsampleNearestBackward, Out, In, Ints, Ints);
DIOPI(UpsampleLinear, Out, In, Ints, bool, const char*);
DIOPI(UpsampleLinearBackward, Out, In, Ints, Ints, bool, const char*);
DIOPI(Im2Col, Out, In, Ints, Ints, Ints, Ints);
DIOPI(Col2Im, Out, In, Ints, Ints, Ints, Ints, Ints);
DIOPI(EmbeddingBackward, Out, In, In, int64_t, int64_t, bool, bool);

// Losses.
DIOPI(MSELoss, Out, In, In, Reduction);
DIOPI(MSELossBackward, Out, In, In, In, Reduction);
DIOPI(SmoothL1Loss, Out, In, In, Reduction, double);
DIOPI(SmoothL1LossBackward, Out, In, In, In, Reduction, double);
DIOPI(BCELoss, Out, In, In, In, Reduction);
DIOPI(BCELossBackward, Out, In, In, In, In, Reduction);
DIOPI(NLLLossV2, Out, Out, In, In, In, Reduction, int64_t);
DIOPI(NLLLossV2Backward, Out, In, In, In, In, In, Reduction, int64_t);

// Places.
DIOPI(Cat, Out, In*, int64_t, int64_t);
DIOPI(Stack, Out, In*, int64_t, int64_t);
DIOPI(Index, Out*, In, In*, int64_t);
DIOPI(IndexPutInp, Out, In, In*, int64_t, bool);
DIOPI(IndexSelect, Out, In, int64_t, In);
DIOPI(IndexFillScalar, Out, In, int64_t, In, const Number*);
DIOPI(Gather, Out, In, int64_t, In);
DIOPI(Scatter, Out, In, int64_t, In, In, const char*);
DIOPI(ScatterScalar, Out, In, int64_t, const Number*, In, const char*);
DIOPI(Nonzero, Out*, In);
DIOPI(Tril, Out, In, int64_t);
DIOPI(Triu, Out, In, int64_t);
DIOPI(Flip, Out, In, Ints);
DIOPI(Roll, Out, In, Ints, Ints);
DIOPI(Arange, Out, const Number*, const Number*, const Number*);
DIOPI(Linspace, Out, const Number*, const Number*, int64_t);

// Random numbers.
DIOPI(UniformInp, Out, double, double, Generator);
DIOPI(NormalInp, Out, double, double, Generator);
DIOPI(RandomInp, Out, int64_t, const int64_t*, Generator);
DIOPI(BernoulliScalar, Out, double, Generator);
DIOPI(Bernoulli, Out, In, Generator);
DIOPI(Randperm, Out, int64_t, Generator);
DIOPI(Multinomial, Out, In, int64_t, bool, Generator);

// Optimizers and lists.
DIOPI(FusedAdamW, Out*, In*, Out*, Out*, Out*, In*, int64_t, double, double, double, double, double, bool, bool);
DIOPI(AmpForeachNonFiniteCheckAndUnscaleInp, Out*, int64_t, Out, In);
DIOPI(AmpUpdateScaleInp, Out, Out, In, double, double, int32_t);
DIOPI(ForeachaddScalar, Out*, In*, int64_t, const Number*);
DIOPI(ForeachmulScalar, Out*, In*, int64_t, const Number*);
DIOPI(ForeachmulTensor, Out*, In*, int64_t, In);

}  // extern "C"

#undef Out
#undef In
#undef Number
#undef Ints
#undef Generator
#undef Reduction
#undef RoundMode
#undef DIOPI
