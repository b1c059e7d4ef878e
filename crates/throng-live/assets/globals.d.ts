// Names that the page has from other scripts, for the check of types.
/** uPlot 1.6, which the hub serves beside the page. */
declare var uPlot: any;
